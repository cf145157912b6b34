//! The page in a real browser.

use rehop::settings::Secret;
use rehop_page::Action;
use rehop_testing::Broker;
use serde_json::json;

use super::browser::{Browser, ENTER};
use super::http::{Served, encode};
use super::stock;
use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_person_finds_a_group_looks_at_a_message_and_sends_all_back() {
    let fixture = Fixture::new("ui-person").await;
    fixture.declare().await;
    stock::park(&fixture, 7).await;
    let (serving, _) = stock::mended(&fixture).await;
    let page = Served::start(&fixture, &[Action::Replay, Action::Discard, Action::Reveal]).await;
    let Some(browser) = Browser::open(1200, &[]).await else { return };
    browser.enter(&page).await;
    browser.shows("7 parked").await;
    browser.is_accessible("the front page").await;
    browser.click("td a[href^='/messages']").await;
    browser.shows("all 7 messages: 7 match").await;
    browser.is_accessible("the groups").await;
    browser.picture("groups").await;
    browser.click("th a[href*='class=']").await;
    browser.shows("7 match").await;
    browser.click("th a[href^='/message?']").await;
    browser.shows("What a replay would do").await;
    browser.is_accessible("a message").await;
    browser.picture("message").await;
    browser.click_link("Queues").await;
    browser.click("td a[href^='/messages']").await;
    browser.click_link("Replay these …").await;
    browser.shows("Where they go").await;
    browser.is_accessible("a plan").await;
    browser.fill("input[name=why]", "the customers are back").await;
    browser.click("button.strong").await;
    // Nobody reloads: the page does, when it is told.
    browser.shows("every message was handled").await;
    browser.is_accessible("the end of a replay").await;
    browser.picture("replay").await;
    browser.click_link("Queues").await;
    browser.shows("0 parked").await;
    fixture.has_depth(&fixture.parked(), 0).await;
    browser.close().await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_front_page_changes_by_itself() {
    let fixture = Fixture::new("ui-live").await;
    fixture.declare().await;
    let page = Served::start(&fixture, &[]).await;
    let Some(browser) = Browser::open(1200, &[]).await else { return };
    browser.enter(&page).await;
    browser.shows("0 parked").await;
    stock::park_bytes(&fixture, b"x".to_vec(), "one").await;
    browser.shows("1 parked").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_message_runs_nothing_in_a_browser() {
    let fixture = Fixture::new("ui-evil").await;
    fixture.declare().await;
    stock::park_hostile(&fixture).await;
    let page = Served::start(&fixture, &[]).await;
    let Some(browser) = Browser::open(1200, &[]).await else { return };
    browser.enter(&page).await;
    for link in ["td a[href^='/messages']", "th a[href^='/message?']"] {
        browser.click(link).await;
        browser.shows("document.title").await;
        let seen = browser
            .run("return [document.title, document.querySelectorAll('main img, main script, main i').length]")
            .await;
        assert!(seen[0].as_str().unwrap().ends_with("– rehop"), "{seen}");
        assert_eq!(seen[1], 0);
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_done_by_keyboard() {
    let fixture = Fixture::new("ui-keys").await;
    fixture.declare().await;
    stock::park(&fixture, 1).await;
    let (serving, _) = stock::mended(&fixture).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let Some(browser) = Browser::open(1200, &[]).await else { return };
    browser.enter(&page).await;
    browser.tab_to("Skip to the content").await;
    browser.press(ENTER).await;
    browser.tab_to("1 parked").await;
    browser.press(ENTER).await;
    browser.shows("1 match").await;
    browser.tab_to("m-0").await;
    browser.press(ENTER).await;
    browser.shows("What a replay would do").await;
    browser.tab_to("Replay it").await;
    browser.press(ENTER).await;
    browser.shows("Where they go").await;
    browser.tab_to("why").await;
    browser.press("mended").await;
    browser.tab_to("Replay 1").await;
    browser.press(ENTER).await;
    browser.shows("every message was handled").await;
    browser.close().await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_without_scripts() {
    let fixture = Fixture::new("ui-plain").await;
    fixture.declare().await;
    stock::park(&fixture, 1).await;
    let (serving, _) = stock::mended(&fixture).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let Some(browser) = Browser::open(1200, &["--blink-settings=scriptEnabled=false"]).await else {
        return;
    };
    browser.enter(&page).await;
    browser.shows("does not update itself").await;
    browser.click("td a[href^='/messages']").await;
    browser.click_link("Replay these …").await;
    browser.shows("Where they go").await;
    browser.fill("input[name=why]", "mended").await;
    browser.click("button.strong").await;
    browser.shows("every message was handled").await;
    browser.close().await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_fits_a_phone_and_the_dark() {
    let mut fixture = Fixture::new("ui-phone").await;
    fixture.settings.broker.management_url =
        Broker::shared().await.management_url().map(Secret::from);
    fixture.declare().await;
    stock::park_hostile(&fixture).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let Some(browser) = Browser::open(500, &["--blink-settings=preferredColorScheme=0"]).await
    else {
        return;
    };
    browser.client.set_window_size(400, 800).await.unwrap();
    browser.enter(&page).await;
    assert_eq!(
        browser.run("return matchMedia('(prefers-color-scheme: dark)').matches").await,
        json!(true)
    );
    let queue = encode(&fixture.queue);
    for path in [
        "/".to_owned(),
        format!("/messages?queue={queue}"),
        format!("/plan/replay?queue={queue}"),
        "/runs".to_owned(),
    ] {
        browser.client.goto(&format!("http://{}{path}", page.authority)).await.unwrap();
        let wide =
            browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(wide, json!(0), "{path} is not wider than the window");
        browser.is_accessible(&format!("{path} in the dark")).await;
    }
    browser
        .client
        .goto(&format!("http://{}/messages?queue={queue}", page.authority))
        .await
        .unwrap();
    browser.click("th a[href^='/message?']").await;
    browser.shows("What a replay would do").await;
    let wide = browser
        .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .await;
    assert_eq!(wide, json!(0), "a message is not wider than the window");
    browser.is_accessible("a message in the dark").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_edits_a_message_and_discards_another() {
    let fixture = Fixture::new("ui-mend").await;
    fixture.declare().await;
    stock::park_bytes(&fixture, b"wrong".to_vec(), "one").await;
    stock::park_bytes(&fixture, b"useless".to_vec(), "two").await;
    let (serving, seen) = fixture.serve_noting(|message| message.body.clone(), Ok(())).await;
    let page = Served::start(&fixture, &[Action::Edit, Action::Discard]).await;
    let Some(browser) = Browser::open(1200, &[]).await else { return };
    browser.enter(&page).await;
    let messages = format!("http://{}/messages?queue={}", page.authority, encode(&fixture.queue));
    browser.client.goto(&messages).await.unwrap();
    browser.click_link("one").await;
    browser.click_link("Edit and send it …").await;
    browser.is_accessible("the form of an edit").await;
    browser.fill("textarea", "ly right, ").await;
    browser.fill("input[name=why]", "a typing error").await;
    browser.click("button.strong").await;
    browser.shows("has handled the edited message").await;
    assert_eq!(seen.all().len(), 1);
    assert!(String::from_utf8_lossy(&seen.all()[0]).contains("right"));
    browser.client.goto(&messages).await.unwrap();
    browser.click_link("two").await;
    browser.click_link("Discard it …").await;
    browser.shows("Where they go").await;
    browser.fill("input[name=why]", "a test").await;
    browser.click("button.strong").await;
    browser.shows("in the discarded queue for seven days").await;
    browser.is_accessible("the end of a discard").await;
    browser.fill("input[name=why]", "it was useful").await;
    browser.click("form[action$='/undo'] button").await;
    browser.shows("The messages are back where they were").await;
    browser.is_accessible("the end of an undo").await;
    browser.click_link("Discarded").await;
    browser.shows("1 match").await;
    fixture.has_depth(&fixture.parked(), 1).await;
    browser.close().await;
    serving.stop().await;
}
