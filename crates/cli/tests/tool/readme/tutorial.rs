//! The tutorial. Its service is examples/tutorial.rs, whose test runs with those of the examples.
//! Its dashboards need images that are not here.

use rehop_testing::{Broker, eventually};

use super::blocks::{Block, blocks};
use super::shown::masked;
use super::{Instead, Reader, Replaced, read, shown};
use crate::support::{SOON, not_tried};

const TUTORIAL: Instead<'_> = &[
    // The tool's part of a trace needs a collector.
    ("export OTEL_", Replaced::Nothing),
    // Nothing is started that it could stop.
    ("docker compose -f ../rehop/observability/compose.yaml down", Replaced::Nothing),
];

/// The blocks between two headings.
fn section<'a>(page: &'a str, heading: &str, next: &str) -> Vec<Block<'a>> {
    let (_, section) = page.split_once(heading).unwrap();
    blocks(section.split_once(next).unwrap().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tutorial_types_works_and_prints_what_it_shows() {
    const LIMITS: &str = "REHOP_PROFILE=development rehop topology show --queue orders";
    if Broker::shared().await.management_url().is_none() {
        return not_tried("what the tutorial types, because REHOP_TEST_MANAGEMENT_URL is not set");
    }
    let (page, readme) = (read("src/docs/tutorial.md"), read("README.md"));
    let mut reader = Reader::new("tutorial", TUTORIAL).await;
    reader.write("rehop.toml", &shown(&readme, "rehop.toml"));

    let first = section(&page, "## 1. ", "## 2. ");
    assert!(page.contains(&format!("`{LIMITS}` prints")));
    let printed = crate::process::Tool::of(reader.shell(LIMITS)).finished().await.out;
    assert!(
        masked(printed.lines()).ends_with(&masked(first[0].lines.iter().copied())),
        "{printed}"
    );

    reader.starts("REHOP_PROFILE=development cargo run", "tutorial").await;
    let readme = blocks(&readme);
    let publish = readme
        .iter()
        .flat_map(Block::typed)
        .filter(|typed| typed.command.starts_with("rehop publish "));
    for typed in publish {
        reader.types(&typed).await;
    }
    reader.sees_parked(1).await;

    for block in section(&page, "## 4. ", "## Where to go on") {
        for typed in block.typed() {
            reader.types(&typed).await;
            if typed.command.starts_with("rehop publish ") {
                reader.sees_parked(2).await;
            }
        }
        if block.typed().is_empty() {
            let service = reader.service.as_ref().unwrap();
            eventually(SOON, "the service prints what the page shows", async || {
                let printed = service.out.text();
                if printed.lines().collect::<Vec<_>>().ends_with(&block.lines) {
                    Ok(true)
                } else {
                    Err(printed)
                }
            })
            .await
            .unwrap();
        }
    }
    reader.stops().await;
}

#[test]
fn the_tutorials_service_and_its_test_are_the_example() {
    let (page, example) = (read("src/docs/tutorial.md"), read("examples/tutorial.rs"));
    let code: Vec<_> = section(&page, "## 2. ", "## 3. ")
        .into_iter()
        .filter(|block| block.typed().is_empty() && block.language != "toml")
        .collect();
    assert_eq!(code.len(), 3, "the service, a line of main, and the test");
    for block in code {
        let text: String = block.lines.iter().map(|line| format!("{line}\n")).collect();
        let indented: String = block.lines.iter().map(|line| format!("    {line}\n")).collect();
        assert!(
            example.contains(&text) || example.contains(&indented),
            "the example does not have {text}"
        );
    }
    let main = |program: &str| {
        program.split_once("#[tokio::main]\n").unwrap().1.split_once("\n}\n").unwrap().0.to_owned()
    };
    let (readmes, tutorials) = (main(&read("examples/orders.rs")), main(&example));
    let gone: Vec<_> = readmes.lines().filter(|line| !tutorials.contains(line)).collect();
    assert_eq!(
        gone.len(),
        4,
        "README's main without the lines that the tutorial replaces: {gone:#?}"
    );
}
