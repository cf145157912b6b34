//! A real browser: Debian's Chromium, by W3C WebDriver.

use std::process::Stdio;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rehop_testing::{Port, eventually};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, MutexGuard};

use super::http::Served;
use crate::support::{SOON, not_tried};

/// One browser at a time: it takes more than any other test.
static ONE: Mutex<()> = Mutex::const_new(());

pub(crate) struct Browser {
    pub(crate) client: Client,
    driver: Child,
    _port: Port,
    _one: MutexGuard<'static, ()>,
}

impl Browser {
    /// A window of this size, with further switches of Chromium. `None`, loudly, if there is no
    /// browser.
    pub(crate) async fn open(width: u32, switches: &[&str]) -> Option<Self> {
        let one = ONE.lock().await;
        let port = Port::claim().unwrap();
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={}", port.number()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let Ok(driver) = command.spawn() else {
            assert!(
                std::env::var_os("REHOP_TEST_BROWSER").is_none(),
                "chromedriver cannot be started"
            );
            not_tried("a page in a browser, because there is no chromedriver; see make test-page");
            return None;
        };
        // Chromium refuses its sandbox to root, which containers run as.
        let size = format!("--window-size={width},1000");
        let usual = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            &size,
        ];
        let arguments = [&usual[..], switches].concat();
        let options = json!({ "args": arguments });
        let capabilities = serde_json::Map::from_iter([("goog:chromeOptions".to_owned(), options)]);
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let url = format!("http://{}", port.address());
        let connected: Mutex<Option<Client>> = Mutex::new(None);
        eventually(SOON, "the browser starts", async || {
            let client = builder.connect(&url).await.map_err(|error| error.to_string())?;
            *connected.lock().await = Some(client);
            Ok::<_, String>(true)
        })
        .await
        .unwrap();
        Some(Self { client: connected.into_inner().unwrap(), driver, _port: port, _one: one })
    }

    /// Opens the page by its one-time address.
    pub(crate) async fn enter(&self, page: &Served) {
        self.client.goto(page.ui.address()).await.unwrap();
        let url = self.client.current_url().await.unwrap();
        assert!(
            url.path() == "/" && url.query().is_none(),
            "the token has left the address: {url}"
        );
    }

    pub(crate) async fn click(&self, css: &str) {
        self.client
            .find(Locator::Css(css))
            .await
            .unwrap_or_else(|error| panic!("{css}: {error}"))
            .click()
            .await
            .unwrap();
    }

    pub(crate) async fn click_link(&self, text: &str) {
        let link = self.client.find(Locator::LinkText(text)).await;
        link.unwrap_or_else(|error| panic!("{text}: {error}")).click().await.unwrap();
    }

    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.client.find(Locator::Css(css)).await.unwrap().send_keys(text).await.unwrap();
    }

    /// The text of the page's content.
    pub(crate) async fn text(&self) -> String {
        match self.client.find(Locator::Css("main")).await {
            Ok(main) => main.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub(crate) async fn shows(&self, text: &str) {
        let what = format!("the page shows {text:?}");
        let seen = async || {
            let seen = self.text().await;
            if seen.contains(text) { Ok(true) } else { Err(seen) }
        };
        eventually(SOON, &what, seen).await.unwrap();
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Presses a key where the focus is.
    pub(crate) async fn press(&self, key: &str) {
        self.client.active_element().await.unwrap().send_keys(key).await.unwrap();
    }

    /// Moves the focus by the Tab key until it is on an element with this text or name, and checks
    /// that it can be seen there.
    pub(crate) async fn tab_to(&self, text: &str) {
        const FOCUSED: &str = "const e = document.activeElement; const s = getComputedStyle(e); \
             return [(e.innerText || e.value || '').trim() + '|' + (e.name || ''), s.outlineStyle !== 'none'];";
        for _ in 0..200 {
            self.press(TAB).await;
            let focused = self.run(FOCUSED).await;
            if focused[0]
                .as_str()
                .is_some_and(|seen| seen.starts_with(text) || seen.ends_with(&format!("|{text}")))
            {
                assert_eq!(focused[1], true, "the focus on {text:?} can be seen");
                return;
            }
        }
        panic!("no focus on {text:?} by the Tab key");
    }

    /// What axe-core finds that is serious. `None`, loudly, if its file is not there.
    pub(crate) async fn violations(&self) -> Option<Vec<String>> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/axe.min.js");
        let Ok(axe) = std::fs::read_to_string(file) else {
            assert!(std::env::var_os("REHOP_TEST_BROWSER").is_none(), "there is no {file}");
            not_tried(&format!("accessibility, because there is no {file}; see make test-page"));
            return None;
        };
        self.client.execute(&axe, Vec::new()).await.unwrap();
        const RUN: &str = "const done = arguments[arguments.length - 1]; axe.run().then(r => done(r.violations \
             .filter(v => v.impact === 'serious' || v.impact === 'critical') \
             .map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ').slice(0, 300))), e => done(['axe: ' + e]));";
        let found = self.client.execute_async(RUN, Vec::new()).await.unwrap();
        Some(
            found
                .as_array()
                .unwrap()
                .iter()
                .map(|text| text.as_str().unwrap().to_owned())
                .collect(),
        )
    }

    pub(crate) async fn is_accessible(&self, what: &str) {
        if let Some(violations) = self.violations().await {
            assert!(violations.is_empty(), "{what}: {violations:#?}");
        }
    }

    /// A picture for the README, if REHOP_TEST_PICTURES asks for one.
    pub(crate) async fn picture(&self, name: &str) {
        if std::env::var_os("REHOP_TEST_PICTURES").is_some() {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../observability/page");
            std::fs::create_dir_all(directory).unwrap();
            let picture = self.client.screenshot().await.unwrap();
            std::fs::write(format!("{directory}/{name}.png"), picture).unwrap();
        }
    }

    pub(crate) async fn close(mut self) {
        self.client.clone().close().await.unwrap();
        self.driver.kill().await.unwrap();
    }
}

pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
