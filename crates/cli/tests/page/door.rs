//! What protects the page.

use std::io::{Read, Write};

use rehop_page::{Listen, Options};
use rehop_testing::eventually;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::http::{Served, settings, through_socket};
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_address_lets_one_browser_in_once_and_leaves_no_token_in_the_address() {
    let fixture = Fixture::new("ui-token").await;
    let page = Served::start(&fixture, &[]).await;
    for (path, says) in [
        ("/", "not been let in"),
        ("/enter?token=wrong", "used up"),
        ("/enter", "used up"),
        ("/live", "let in"),
    ] {
        let refused = page.request("GET", path, &[], "").await;
        assert_eq!(refused.status, 403, "{path}");
        assert!(
            refused.body.contains(says) && refused.header("set-cookie").is_none(),
            "{path}: {}",
            refused.body
        );
    }
    // Looking at an address without opening it does not use it up.
    assert_eq!(page.request("HEAD", &page.entrance(), &[], "").await.status, 403);
    let entered = page.request("GET", &page.entrance(), &[], "").await;
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")));
    let cookie = entered.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let token = page.entrance().rsplit_once('=').unwrap().1.to_owned();
    assert!(!cookie.contains(&token), "the session is not the token");
    let cookie = format!("cookie: {}", cookie.split(';').next().unwrap());
    let front = page.get("/", &cookie).await;
    assert_eq!(front.status, 200);
    assert!(front.body.contains(&fixture.queue) && !front.body.contains(&token), "{}", front.body);
    assert_eq!(page.request("GET", &page.entrance(), &[], "").await.status, 403);
    let guess = format!("{}=guess", cookie.split('=').next().unwrap());
    assert_eq!(page.get("/", &guess).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_is_let_in_can_invite_another() {
    let fixture = Fixture::new("ui-invite").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let form = page.get("/", &cookie).await.field("form");
    let invited = page.post("/invite", &cookie, &[("form", &form)]).await;
    let at = invited.body.find("/enter?token=").unwrap();
    let path = invited.body[at..].split('<').next().unwrap().to_owned();
    assert_eq!(page.request("GET", &path, &[], "").await.status, 303);
    assert_eq!(page.request("GET", &path, &[], "").await.status, 403);
    assert_eq!(page.get("/", &cookie).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_the_pages_own_gets_nothing() {
    let fixture = Fixture::new("ui-host").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let port = page.authority.rsplit_once(':').unwrap().1.to_owned();
    let own = [
        page.authority.clone(),
        format!("localhost:{port}"),
        "LOCALHOST:9".to_owned(),
        "[::1]:7672".to_owned(),
    ];
    for host in own {
        let answer = page.send(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n{cookie}"), "").await;
        assert_eq!(answer.status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "localhost\r\nhost: evil.example",
    ] {
        let answer = page.send(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n{cookie}"), "").await;
        assert_eq!(answer.status, 421, "{host}");
        assert!(!answer.body.contains(&fixture.queue));
    }
    let absolute =
        format!("GET http://evil.example/ HTTP/1.1\r\nhost: {}\r\n{cookie}", page.authority);
    assert_eq!(page.send(&absolute, "").await.status, 421);
    assert_eq!(page.send(&format!("GET / HTTP/1.0\r\n{cookie}"), "").await.status, 421);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_or_another_session_is_refused() {
    let fixture = Fixture::new("ui-csrf").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let form = format!("form={}", page.get("/", &cookie).await.field("form"));
    let own = format!("origin: http://{}", page.authority);
    let post = async |headers: &[&str], body: &str| {
        page.request("POST", "/invite", &[&[cookie.as_str()], headers].concat(), body).await.status
    };
    assert_eq!(post(&["sec-fetch-site: same-origin"], &form).await, 200);
    assert_eq!(post(&[&own], &form).await, 200);
    for headers in [
        &["sec-fetch-site: cross-site"][..],
        &["sec-fetch-site: same-site"],
        &["origin: http://evil.example"],
        &["origin: null"],
        &["origin: http://127.0.0.1:1"],
        &["sec-fetch-site: cross-site", &own],
    ] {
        assert_eq!(post(headers, &form).await, 403, "{headers:?}");
    }
    for body in ["", "form=", "form=wrong", "other=1", "form=%FF"] {
        assert!([400, 403].contains(&post(&["sec-fetch-site: same-origin"], body).await), "{body}");
    }
    assert_eq!(page.request("POST", "/invite", &[], &form).await.status, 403, "without a session");
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
        assert_eq!(page.request(method, "/", &[&cookie], "").await.status, 405, "{method}");
    }
    // What only reads is not for forms.
    assert_eq!(post(&[&own], &form).await, 200);
    assert_eq!(page.request("GET", "/invite", &[&cookie], "").await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_scripts_frames_caches_and_referrers_to_other_sites() {
    let fixture = Fixture::new("ui-headers").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let host = format!("host: {}", page.authority);
    for (what, head) in [
        ("a page", format!("GET / HTTP/1.1\r\n{host}\r\n{cookie}")),
        ("a file", format!("GET /page.js HTTP/1.1\r\n{host}")),
        ("no session", format!("GET / HTTP/1.1\r\n{host}")),
        ("no page", format!("GET /none HTTP/1.1\r\n{host}\r\n{cookie}")),
        ("a wrong name", "GET / HTTP/1.1\r\nhost: evil.example".to_owned()),
        (
            "a wrong origin",
            format!("POST / HTTP/1.1\r\n{host}\r\nsec-fetch-site: cross-site\r\ncontent-length: 0"),
        ),
    ] {
        let answer = page.send(&head, "").await;
        let policy = answer
            .header("content-security-policy")
            .unwrap_or_else(|| panic!("{what}: {answer:?}"));
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{what}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{what}");
        }
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused() {
    let fixture = Fixture::new("ui-limits").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let form = page.get("/", &cookie).await.field("form");
    let large = "x".repeat(300 * 1024);
    let body = [("form", form.as_str()), ("body", &large)];
    assert_eq!(page.post("/invite", &cookie, &body).await.status, 413);
    let long = page.get(&format!("/?{}", "x".repeat(20 * 1024)), &cookie).await;
    assert!([414, 431, 400, 0].contains(&long.status), "{}", long.status);
    let many: Vec<_> = (0..100).map(|number| format!("x-{number}: 1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(page.request("GET", "/", &many, "").await.status, 431);
    assert_eq!(page.get("/", &cookie).await.status, 200);
}

/// The server's clock is paused, so it closes no silent connection. An answer that needed that would
/// never come.
#[tokio::test]
async fn clients_that_send_nothing_or_little_hold_up_nobody() {
    let fixture = Fixture::new("ui-slow").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let authority = page.authority.clone();
    tokio::time::pause();
    // While a blocking task runs, tokio does not advance a paused clock.
    let asked = tokio::task::spawn_blocking(move || {
        let connect = || std::net::TcpStream::connect(&authority).unwrap();
        let mut slow: Vec<_> = (0..300).map(|_| connect()).collect();
        for stream in slow.iter_mut().step_by(2) {
            stream.write_all(b"GET / HTTP/1.1\r\nhost:").unwrap();
        }
        let mut quick = connect();
        quick.set_read_timeout(Some(SOON)).unwrap();
        write!(quick, "GET / HTTP/1.1\r\nhost: {authority}\r\n{cookie}\r\n\r\n").unwrap();
        let mut answer = String::new();
        quick.read_to_string(&mut answer).expect("the page is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        slow
    });
    let slow = asked.await.unwrap();
    tokio::time::resume();
    // Their connections are closed, whatever they do.
    for slow in slow {
        slow.set_nonblocking(true).unwrap();
        let mut slow = TcpStream::from_std(slow).unwrap();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(SOON, slow.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "a connection that sends nothing is closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_serves_the_page_to_this_user_and_still_asks_for_the_token() {
    let fixture = Fixture::new("ui-socket").await;
    let path = std::env::temp_dir().join(format!("{}.socket", fixture.namespace.name()));
    let mut options = Options::default();
    options.listen = Listen::Socket(path.clone());
    let ui = rehop_page::start(&settings(&fixture), options).await.unwrap();
    let token = ui.address().rsplit_once('=').unwrap().1.to_owned();
    let get = async |path_and: &str, more: &str| {
        through_socket(&path, &format!("GET {path_and} HTTP/1.1\r\nhost: localhost:9000{more}"))
            .await
    };
    assert_eq!(get("/", "").await.status, 403);
    let entered = get(&format!("/enter?token={token}"), "").await;
    let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let front = get("/", &format!("\r\ncookie: {cookie}")).await;
    assert_eq!(front.status, 200);
    assert_eq!(through_socket(&path, "GET / HTTP/1.1\r\nhost: evil.example").await.status, 421);
    drop(ui);
    let gone = async || Ok::<_, String>(!path.exists());
    eventually(SOON, "the socket is removed", gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_the_page_has_the_proxys_name_and_a_secure_cookie() {
    let fixture = Fixture::new("ui-proxy").await;
    let path = std::env::temp_dir().join(format!("{}.socket", fixture.namespace.name()));
    let mut options = Options::default();
    options.listen = Listen::Socket(path.clone());
    options.public_url = Some("https://ops.example.com".to_owned());
    let ui = rehop_page::start(&settings(&fixture), options).await.unwrap();
    let way = ui.address().strip_prefix("https://ops.example.com").unwrap().to_owned();
    let entered =
        through_socket(&path, &format!("GET {way} HTTP/1.1\r\nhost: ops.example.com")).await;
    assert!(entered.header("set-cookie").unwrap().ends_with("; Secure"), "{entered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_ends_when_it_is_dropped() {
    let fixture = Fixture::new("ui-end").await;
    let page = Served::start(&fixture, &[]).await;
    let authority = page.authority.clone();
    drop(page);
    let gone = async || Ok::<_, String>(TcpStream::connect(&authority).await.is_err());
    eventually(SOON, "the server stops", gone).await.unwrap();
}
