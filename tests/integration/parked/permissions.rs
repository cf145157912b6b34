//! The permissions that the page about parked messages gives an operator.

use rehop::Error;
use rehop_operator::parked::{
    DiscardRequest, EditRequest, Filter, ImportRequest, ListRequest, Parked, ParkedError, Place,
    RestoreRequest,
};
use rehop_testing::{Broker, Publish};

use super::{never, numbered, ramp, request};
use crate::support::{Fixture, SOON, not_tried};

const PAGE: &str = include_str!("../../../crates/operator/src/docs/parked.md");

const CONFIGURE: usize = 0;
const WRITE: usize = 1;
const READ: usize = 2;

/// The page's permissions for queue `orders` of namespace `billing`, with this test's names.
fn documented(fixture: &Fixture) -> [String; 3] {
    let (_, sentence) =
        PAGE.split_once("needs at most configure").expect("the page has the permissions");
    let (namespace, queue) = (fixture.namespace.name(), fixture.queue.replace('.', r"\."));
    let patterns = sentence.split('`').skip(1).step_by(2).take(3);
    let patterns =
        patterns.map(|pattern| pattern.replace("orders", &queue).replace("billing", namespace));
    let [configure, write, read] =
        patterns.collect::<Vec<_>>().try_into().expect("configure, write and read");
    // Where stray messages are looked at, their queue takes the place of the parked one.
    [format!(r"{configure}|^{namespace}\.stray$"), write, read]
}

#[track_caller]
fn is_denied(error: &ParkedError, resource: &str) {
    let is_permission = matches!(error, ParkedError::Broker(Error::Permission { .. }));
    assert!(
        is_permission && error.to_string().contains(resource),
        "{resource:?} is not named: {error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_permissions_are_enough_for_an_operator_and_without_one_the_error_names_it()
{
    if Broker::shared().await.management_url().is_none() {
        not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
        return;
    }
    let mut fixture = Fixture::new("operator-least").await;
    // As on the page, the queue's name does not begin with the namespace and a dot.
    fixture.queue = format!("{}-orders", fixture.namespace.name());
    let [return_, park, discarded] =
        ["return", "park", "discarded"].map(|name| fixture.namespace.exchange(name));
    let lock = fixture.namespace.exchange(&format!("op.lock.{}", fixture.parked()));
    fixture.park(numbered(6)).await;
    let to_nowhere = Publish::to(&return_, "key").header("rehop-return-to", "nowhere");
    fixture.client.publish(to_nowhere.body("lost")).await.unwrap();
    fixture.has_depth(&fixture.stray(), 1).await;
    let run = fixture.serve_always(Ok(())).await;

    let documented = documented(&fixture);
    fixture.limit("operator", documented.each_ref().map(String::as_str)).await;
    let operator = fixture.operator();
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let stray = Parked::open(&fixture.settings, Place::Stray).unwrap();
    let mut rows = ListRequest::default();
    rows.rows = 9;
    let listing = operator.list(&rows).await.unwrap();
    let chain = &listing.messages[2].chain;
    assert_eq!((listing.matched, operator.show(chain, None).await.unwrap().matched), (6, 1));
    let mut exported = Vec::new();
    let export = |message| {
        exported.push(message);
        true
    };
    assert_eq!(operator.export(&Filter::default(), None, export).await.unwrap(), 6);
    let mut discard = DiscardRequest::default();
    discard.filter.limit = Some(1);
    assert_eq!(operator.discard(&discard, |_| {}, never()).await.unwrap().tally.moved, 1);

    let without = async |kind: usize, resource: &str| {
        let mut permissions = documented.clone();
        permissions[kind] =
            format!("(?!^{}$)(?:{})", resource.replace('.', r"\."), documented[kind]);
        fixture.allow(permissions.each_ref().map(String::as_str)).await;
    };
    without(CONFIGURE, &lock).await;
    is_denied(&operator.list(&rows).await.unwrap_err(), &lock);
    without(READ, &fixture.parked()).await;
    is_denied(&operator.list(&rows).await.unwrap_err(), &fixture.parked());
    without(WRITE, &return_).await;
    is_denied(&operator.replay(&request(ramp(&[1])), |_| {}, never()).await.unwrap_err(), &return_);
    without(CONFIGURE, &discarded).await;
    is_denied(&operator.discard(&discard, |_| {}, never()).await.unwrap_err(), &discarded);
    without(WRITE, &park).await;
    is_denied(&bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap_err(), &park);
    fixture.has_depth(&fixture.parked(), 5).await;
    fixture.has_depth(&discarded, 1).await;

    fixture.allow(documented.each_ref().map(String::as_str)).await;
    assert_eq!(
        bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap().tally.moved,
        1
    );
    let mut edit = EditRequest::new(chain.clone(), "mended");
    edit.follow = SOON;
    let edited = operator.edit(&edit).await.unwrap();
    assert_eq!(edited.fates.handled, 1);
    let imported = operator
        .import(&ImportRequest::default(), exported.into_iter().map(Ok), never())
        .await
        .unwrap();
    assert_eq!(
        (imported.imported, imported.already_there),
        (1, 5),
        "only the edited one is missing"
    );
    let replayed = operator.replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap();
    assert!(replayed.is_success() && replayed.tally.moved == 6, "{replayed:?}");

    assert_eq!(stray.list(&rows).await.unwrap().matched, 1);
    let discarded = stray.discard(&DiscardRequest::default(), |_| {}, never()).await.unwrap();
    let mut restore = RestoreRequest::default();
    restore.filter = Filter::run(discarded.run);
    assert_eq!(bin.restore(&restore, |_| {}, never()).await.unwrap().tally.moved, 1);
    fixture.has_depth(&fixture.stray(), 1).await;
    run.stop().await;
}
