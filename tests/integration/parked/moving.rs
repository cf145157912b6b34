//! Discards, edits, exports and imports.

use std::collections::BTreeMap;

use rehop_operator::parked::{
    DiscardRequest, EditRequest, Exported, Filter, ImportRequest, ListRequest, Parked, ParkedError,
    Place, Planned, RampSettings, RestoreRequest, Stop,
};
use rehop_testing::{Publish, Received};
use serde_json::json;

use super::{never, numbered, ramp, request};
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn discarded_messages_are_kept_and_can_be_replayed() {
    let fixture = Fixture::new("discard").await;
    fixture.park(numbered(5)).await;
    let mut request = DiscardRequest::default();
    request.filter.error = Some("order 3".to_owned());
    (request.expect, request.why) = (Some(1), Some("a test".to_owned()));
    let discarded = fixture.operator().discard(&request, |_| {}, never()).await.unwrap();
    assert_eq!((discarded.stopped, discarded.tally.moved), (None, 1));
    fixture.has_depth(&fixture.parked(), 4).await;
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let listing = bin
        .list(&{
            let mut all = ListRequest::default();
            all.rows = 9;
            all
        })
        .await
        .unwrap();
    let [message] = &listing.messages[..] else { panic!("{listing:?}") };
    assert_eq!(
        (message.reason.as_str(), message.destination.as_deref()),
        ("permanent", Some(fixture.queue.as_str()))
    );
    assert_eq!(message.error.as_deref(), Some("cannot charge order 3"));
    let (run, seen) = fixture
        .serve_noting(|message| String::from_utf8_lossy(&message.body).into_owned(), Ok(()))
        .await;
    let replayed = bin.replay(&super::request(ramp(&[5])), |_| {}, never()).await.unwrap();
    assert!(replayed.is_success(), "{replayed:?}");
    assert_eq!(seen.reaches(1).await, ["order 3"]);
    run.stop().await;
}

/// Everything of a message but what the broker counts.
fn content(received: &Received) -> (String, String, Vec<(String, String)>) {
    let headers = received.exact_headers.iter().filter(|(name, _)| !name.starts_with("x-"));
    let headers = headers.map(|(name, value)| (name.clone(), value.to_string())).collect();
    (format!("{:?}", received.properties), received.text(), headers)
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_what_a_discard_moved_is_restored_as_it_was() {
    let fixture = Fixture::new("restore").await;
    fixture.park(numbered(6)).await;
    // Taking them all shows what they are like; putting them back as they are leaves them so.
    let before = fixture.client.get_all(&fixture.parked()).await.unwrap();
    let park = format!("{}.park", fixture.namespace.name());
    let again = before.iter().map(|message| Publish {
        exchange: park.clone(),
        routing_key: fixture.queue.clone(),
        properties: message.properties.clone(),
        headers: message.exact_headers.clone(),
        ..Publish::to_queue("").body(message.body.clone())
    });
    fixture.client.publish_many(again.collect::<Vec<_>>()).await.unwrap();
    let discard = async |errors: &[&str]| {
        let mut runs = Vec::new();
        for error in errors {
            let mut request = DiscardRequest::default();
            request.filter.error = Some((*error).to_owned());
            let discarded = fixture.operator().discard(&request, |_| {}, never()).await.unwrap();
            runs.push((discarded.run, discarded.tally.moved));
        }
        runs
    };
    let runs = discard(&["order 1", "order 4"]).await;
    fixture.has_depth(&fixture.parked(), 4).await;
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let mut request = RestoreRequest::default();
    (request.filter, request.expect) = (Filter::run(runs[1].0.clone()), Some(2));
    let refused = bin.restore(&request, |_| {}, never()).await.unwrap();
    assert!(
        refused.stopped.is_some() && refused.tally.moved == 0,
        "another number is expected: {refused:?}"
    );
    request.expect = Some(1);
    let restored = bin.restore(&request, |_| {}, never()).await.unwrap();
    assert_eq!((restored.stopped, restored.tally.moved), (None, 1));
    fixture.has_depth(&fixture.parked(), 5).await;
    assert_eq!(
        bin.list(&ListRequest::default()).await.unwrap().matched,
        1,
        "the other discard is left alone"
    );
    let twice = bin.restore(&request, |_| {}, never()).await.unwrap();
    assert_eq!(twice.tally.moved, 0, "nothing is restored twice");
    let after = fixture.client.get_all(&fixture.parked()).await.unwrap();
    let bodies: Vec<_> = after.iter().map(Received::text).collect();
    assert_eq!(
        bodies,
        ["order 0", "order 2", "order 3", "order 5", "order 4"],
        "at the end of its queue"
    );
    assert_eq!(content(after.last().unwrap()), content(&before[4]));
    let elsewhere = fixture.operator().restore(&request, |_| {}, never()).await.unwrap_err();
    assert!(matches!(elsewhere, ParkedError::NotDiscarded), "{elsewhere}");
}

/// As an operator does who forgets to name the service's namespace.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_moved_in_the_name_of_another_namespace_and_looking_goes_on() {
    let fixture = Fixture::new("foreign").await;
    fixture.park(numbered(2)).await;
    let mut settings = fixture.settings.clone();
    settings.namespace = format!("{}-other", fixture.namespace.name());
    let other = Parked::open(&settings, Place::queue(&fixture.queue)).unwrap();
    let mut exported = Vec::new();
    let export = |message| {
        exported.push(message);
        true
    };
    assert_eq!(other.export(&Filter::default(), None, export).await.unwrap(), 2);
    let mut rows = ListRequest::default();
    rows.rows = 1;
    let chain = other.list(&rows).await.unwrap().messages.remove(0).chain;

    // The other namespace does not exist, and then it does.
    for is_declared in [false, true] {
        if is_declared {
            let mut declared = settings.clone();
            declared.queue_mut(&fixture.namespace.queue("invoices"));
            rehop::Topology::of(&declared).unwrap().declare(&declared).await.unwrap();
        }
        let mut plan = ListRequest::default();
        plan.planned = Some(Planned::Discard);
        let again = || exported.iter().cloned().map(Ok);
        let refused = [
            other.list(&plan).await.map(drop),
            other.discard(&DiscardRequest::default(), |_| {}, never()).await.map(drop),
            other.replay(&request(ramp(&[1])), |_| {}, never()).await.map(drop),
            other.edit(&EditRequest::new(chain.clone(), "mended")).await.map(drop),
            other.check_import(again()).await.map(drop),
            other.import(&ImportRequest::default(), again(), never()).await.map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            let ParkedError::OtherNamespace { other: owner, namespace, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(
                (owner.as_str(), namespace),
                (fixture.namespace.name(), &settings.namespace)
            );
            assert!(error.to_string().contains(&format!("--namespace {owner}")), "{error}");
        }
    }
    fixture.has_depth(&fixture.parked(), 2).await;
    let discarded = fixture.client.depth(&format!("{}.discarded", settings.namespace)).await;
    assert!(discarded.is_err(), "nothing was declared: {discarded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_another_namespace_parked_are_not_moved_out_of_a_queue_that_names_no_namespace()
 {
    let fixture = Fixture::new("foreign-queue").await;
    fixture.declare().await;
    let (parked, park) = (fixture.parked(), fixture.namespace.exchange("park"));
    fixture.client.delete_queue(&parked).await.unwrap();
    fixture.client.declare_queue(&parked, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.client.bind(&parked, &park, &fixture.queue, json!({})).await.unwrap();
    fixture.has_depth(&parked, 0).await;
    fixture
        .client
        .publish(Publish::to(park, &fixture.queue).message_id("one").body("one"))
        .await
        .unwrap();
    fixture.has_depth(&parked, 1).await;
    let mut settings = fixture.settings.clone();
    settings.namespace = format!("{}-other", fixture.namespace.name());
    let mut declared = settings.clone();
    declared.queue_mut(&fixture.namespace.queue("invoices"));
    rehop::Topology::of(&declared).unwrap().declare(&declared).await.unwrap();
    let other = Parked::open(&settings, Place::queue(&fixture.queue)).unwrap();
    for refused in [
        other.discard(&DiscardRequest::default(), |_| {}, never()).await.map(drop),
        other.replay(&request(ramp(&[1])), |_| {}, never()).await.map(drop),
        other.edit(&EditRequest::new("one", "mended")).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        let ParkedError::OtherNamespace { other: owner, .. } = &error else { panic!("{error}") };
        assert_eq!(owner, fixture.namespace.name());
        fixture.has_depth(&parked, 1).await;
    }
    assert_eq!(fixture.client.depth(&format!("{}.stray", settings.namespace)).await.unwrap(), 0);
    let discarded =
        fixture.operator().discard(&DiscardRequest::default(), |_| {}, never()).await.unwrap();
    assert_eq!(discarded.tally.moved, 1);
}

/// Somebody else's queue tells of no namespace.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_moved_in_a_namespace_that_does_not_exist() {
    let fixture = Fixture::new("nowhere").await;
    fixture
        .client
        .declare_queue(&fixture.parked(), json!({"x-queue-type": "quorum"}))
        .await
        .unwrap();
    fixture
        .client
        .publish(Publish::to_queue(fixture.parked()).message_id("one").body("one"))
        .await
        .unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    let operator = fixture.operator();
    assert_eq!(operator.list(&ListRequest::default()).await.unwrap().matched, 1);
    let (park, stray) = (fixture.namespace.exchange("park"), fixture.stray());
    let refused = async |missing: &str| {
        let discarded =
            operator.discard(&DiscardRequest::default(), |_| {}, never()).await.map(drop);
        let replayed = operator.replay(&request(ramp(&[1])), |_| {}, never()).await.map(drop);
        let edited = operator.edit(&EditRequest::new("one", "mended")).await.map(drop);
        for refused in [discarded, replayed, edited] {
            let error = refused.unwrap_err();
            assert!(matches!(error, ParkedError::NoSuchNamespace { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(missing) && text.contains(&fixture.settings.namespace),
                "{error}"
            );
        }
    };
    refused(&park).await;
    fixture.client.declare_exchange(&park, "direct", json!({})).await.unwrap();
    refused(&stray).await;

    // A restore would publish to what does not exist, and its plan says so.
    let arguments = json!({"x-queue-type": "quorum"});
    fixture
        .client
        .declare_queue(&fixture.namespace.exchange("discarded"), arguments)
        .await
        .unwrap();
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let mut plan = ListRequest::default();
    plan.planned = Some(Planned::Restore);
    let planned = bin.list(&plan).await.map(drop);
    let restored = bin.restore(&RestoreRequest::default(), |_| {}, never()).await.map(drop);
    for refused in [planned, restored] {
        let error = refused.unwrap_err();
        assert!(matches!(error, ParkedError::NoSuchNamespace { .. }), "{error}");
    }
    fixture.has_depth(&fixture.parked(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stray_message_that_was_discarded_is_restored_to_the_strays() {
    let fixture = Fixture::new("restore-stray").await;
    fixture.declare().await;
    let to_nowhere = Publish::to(format!("{}.return", fixture.namespace.name()), "key")
        .header("rehop-return-to", "nowhere");
    fixture.client.publish(to_nowhere.body("lost")).await.unwrap();
    fixture.has_depth(&fixture.stray(), 1).await;
    let stray = Parked::open(&fixture.settings, Place::Stray).unwrap();
    let rows = || {
        let mut rows = ListRequest::default();
        rows.rows = 1;
        rows
    };
    let before = stray.list(&rows()).await.unwrap().messages.remove(0);
    let discarded = stray.discard(&DiscardRequest::default(), |_| {}, never()).await.unwrap();
    fixture.has_depth(&fixture.stray(), 0).await;
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let mut request = RestoreRequest::default();
    request.filter = Filter::run(discarded.run);
    assert_eq!(bin.restore(&request, |_| {}, never()).await.unwrap().tally.moved, 1);
    fixture.has_depth(&fixture.stray(), 1).await;
    let after = stray.list(&rows()).await.unwrap().messages.remove(0);
    assert_eq!(
        (after.chain, after.exchange, after.destination),
        (before.chain, before.exchange, before.destination)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_discarded_from_a_queue_that_is_gone_stays_and_the_others_come_back_as_the_plan_says()
 {
    let fixture = Fixture::new("restore-gone").await;
    fixture.declare().await;
    let of = |exchange: &str, body: &str| {
        Publish::to(fixture.namespace.exchange(exchange), &fixture.queue).body(body)
    };
    // A parked message comes first, and its queue is the one that is gone.
    fixture.client.publish_many(["one", "two"].map(|body| of("park", body))).await.unwrap();
    fixture.client.publish(of("stray", "three")).await.unwrap();
    fixture.has_depth(&fixture.parked(), 2).await;
    fixture.has_depth(&fixture.stray(), 1).await;
    let stray = Parked::open(&fixture.settings, Place::Stray).unwrap();
    for operator in [fixture.operator(), stray] {
        operator.discard(&DiscardRequest::default(), |_| {}, never()).await.unwrap();
    }
    // Somebody has put this one there without rehop, so nothing says where it was.
    fixture.client.publish(of("discarded", "four")).await.unwrap();
    let discarded = fixture.namespace.exchange("discarded");
    fixture.has_depth(&discarded, 4).await;
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();

    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let mut planning = ListRequest::all(Filter::default());
    planning.planned = Some(Planned::Restore);
    let plan = bin.list(&planning).await.unwrap();
    assert_eq!(plan.destinations, BTreeMap::from([(fixture.stray(), 1)]));
    assert_eq!(plan.missing_destinations, BTreeMap::from([(fixture.parked(), 2)]));
    let restored = bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap();
    let tally = &restored.tally;
    assert_eq!((tally.matched, tally.moved, &restored.stopped), (4, 1, &None));
    assert_eq!(
        (plan.without_destination, tally.without_destination, tally.missing_destination),
        (1, 1, 2)
    );
    fixture.has_depth(&discarded, 3).await;
    fixture.has_depth(&fixture.stray(), 1).await;

    fixture.declare().await;
    let restored = bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap();
    assert_eq!((restored.tally.matched, restored.tally.moved, restored.tally.stayed()), (3, 2, 1));
    assert_eq!(fixture.parked_bodies().await, ["one", "two"]);
    fixture.has_depth(&discarded, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_message_is_handled_and_its_original_is_kept() {
    let fixture = Fixture::new("edit").await;
    fixture.park(numbered(5)).await;
    let operator = fixture.operator();
    let mut rows = ListRequest::default();
    rows.rows = 9;
    let chain = operator.list(&rows).await.unwrap().messages[2].chain.clone();
    let (message, body) = operator.body(&chain, None).await.unwrap();
    assert_eq!((message.size, &body[..]), (7, &b"order 2"[..]));
    let (run, seen) = fixture
        .serve_noting(|message| String::from_utf8_lossy(&message.body).into_owned(), Ok(()))
        .await;
    let mut request = EditRequest::new(chain.clone(), "mended");
    (request.original, request.follow) = (Some(body), SOON);
    let edited = operator.edit(&request).await.unwrap();
    assert_eq!((edited.fates.handled, edited.destination.as_str()), (1, fixture.queue.as_str()));
    assert_eq!(seen.reaches(1).await, ["mended"]);
    let gone = operator.edit(&request).await.unwrap_err();
    assert!(matches!(gone, ParkedError::NoSuchMessage { .. }), "{gone}");
    assert_eq!(fixture.parked_bodies().await, ["order 0", "order 1", "order 3", "order 4"]);
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let (kept, original) = bin.body(&chain, None).await.unwrap();
    assert_eq!((kept.reason.as_str(), &original[..]), ("permanent", &b"order 2"[..]));

    // What was discarded can be edited, too, and each original is restored to where it came from.
    let mut again = EditRequest::new(chain, "mended again");
    again.follow = SOON;
    assert_eq!(bin.edit(&again).await.unwrap().fates.handled, 1);
    assert_eq!(seen.reaches(2).await, ["mended", "mended again"]);
    let restored = bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap();
    assert_eq!(restored.tally.moved, 1, "{restored:?}");
    assert_eq!(fixture.parked_bodies().await, ["order 2"]);
    run.stop().await;
}

/// The broker's answer about the first of these names would not fit into AMQP, and would end the
/// connection; without its line end, the second would be another queue's.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_a_queue_that_no_broker_can_be_asked_about_is_not_edited() {
    let fixture = Fixture::new("edit-unsayable").await;
    fixture.declare().await;
    for (chain, queue) in [("one", "語".repeat(85)), ("two", format!("{}\n", fixture.queue))] {
        let stray = Publish::to(fixture.stray(), "order.created")
            .message_id(chain)
            .header("rehop-return-to", queue);
        fixture.client.publish(stray).await.unwrap();
        let operator = Parked::open(&fixture.settings, Place::Stray).unwrap();
        let error = operator.edit(&EditRequest::new(chain, "mended")).await.unwrap_err();
        assert!(matches!(error, ParkedError::Broker(rehop::Error::Missing { .. })), "{error}");
    }
    fixture.has_depth(&fixture.stray(), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_messages_are_imported_once_and_replayed_like_any_other() {
    let fixture = Fixture::new("transfer").await;
    fixture.park(numbered(30)).await;
    let mut exported = Vec::new();
    let operator = fixture.operator();
    let count = operator
        .export(&Filter::default(), None, |message| {
            exported.push(message);
            true
        })
        .await
        .unwrap();
    assert_eq!((count, exported.len()), (30, 30));
    // Ten are gone. The import brings them back, and leaves the others alone.
    for _ in 0..10 {
        fixture.client.get(&fixture.parked()).await.unwrap().unwrap();
    }
    fixture.has_depth(&fixture.parked(), 20).await;
    let imported = operator
        .import(&ImportRequest::default(), exported.iter().cloned().map(Ok), never())
        .await
        .unwrap();
    assert_eq!((imported.imported, imported.already_there), (10, 20));
    let (run, seen) = fixture
        .serve_noting(
            |message| (String::from_utf8_lossy(&message.body).into_owned(), message.errors().len()),
            Ok(()),
        )
        .await;
    let replayed = operator.replay(&request(RampSettings::none()), |_| {}, never()).await.unwrap();
    assert!(replayed.is_success(), "{replayed:?}");
    let mut handled = seen.reaches(30).await;
    handled.sort();
    let mut expected: Vec<_> = numbered(30).into_iter().map(|body| (body, 1)).collect();
    expected.sort();
    assert_eq!(handled, expected);
    run.stop().await;
}

/// The alternate exchange takes whatever finds no queue, and the broker confirms that.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_binding_of_the_parked_queue_no_import_and_no_restore_is_a_success() {
    let fixture = Fixture::new("unbound").await;
    fixture.park(numbered(4)).await;
    let (operator, mut exported) = (fixture.operator(), Vec::new());
    let sink = |message: Exported| {
        exported.push(Ok(message));
        true
    };
    operator.export(&Filter::default(), None, sink).await.unwrap();
    operator.discard(&DiscardRequest::default(), |_| {}, never()).await.unwrap();
    let park = format!("{}.park", fixture.namespace.name());
    fixture.client.unbind(&fixture.parked(), &park, &fixture.queue, json!({})).await.unwrap();
    let imported = operator.import(&ImportRequest::default(), exported, never()).await.unwrap_err();
    assert!(matches!(imported, ParkedError::Strayed { .. }), "{imported}");
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    let restored = bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap();
    assert_eq!(restored.stopped, Some(Stop::StrayGrew), "{restored:?}");
    fixture.has_depth(&fixture.parked(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_work_queue_that_does_not_exist_or_parks_elsewhere_are_not_imported() {
    let fixture = Fixture::new("import-nowhere").await;
    fixture.declare().await;
    let parked = |body: &str| Publish::to_queue(fixture.parked()).message_id(body).body(body);
    fixture.client.publish_many(["one", "two"].map(parked)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 2).await;
    let (mut exported, operator) = (Vec::new(), fixture.operator());
    let sink = |message| {
        exported.push(message);
        true
    };
    operator.export(&Filter::default(), None, sink).await.unwrap();
    fixture.client.purge(&fixture.parked()).await.unwrap();
    let lines = || exported.iter().cloned().map(Ok);

    // Its parked queue is there, and nobody would ever handle a replay.
    fixture.client.delete_queue(&fixture.queue).await.unwrap();
    let checked = operator.check_import(lines()).await.unwrap_err();
    let imported = operator.import(&ImportRequest::default(), lines(), never()).await.unwrap_err();
    for error in [checked, imported].map(|error| error.to_string()) {
        assert!(
            error.contains(&format!("{:?}", fixture.queue)) && error.contains("does not exist"),
            "{error}"
        );
    }
    fixture.has_depth(&fixture.parked(), 0).await;
    fixture.has_depth(&fixture.stray(), 0).await;

    fixture.declare().await;
    let mut mixed = exported.clone();
    mixed[1].destination = Some("elsewhere".to_owned());
    let other = operator.check_import(mixed.into_iter().map(Ok)).await.unwrap_err().to_string();
    let expected = "line 2 cannot be imported: it belongs to queue \"elsewhere\", which parks in \"elsewhere.parked\"";
    assert!(other.starts_with(expected), "{other}");
    assert_eq!(plan(&operator, lines()).await.unwrap(), (2, 0));
    assert_eq!(
        operator.import(&ImportRequest::default(), lines(), never()).await.unwrap().imported,
        2
    );
    fixture.has_depth(&fixture.parked(), 2).await;
}

/// How many messages an import would publish, and how many it would leave out.
async fn plan(
    operator: &Parked,
    lines: impl IntoIterator<Item = Result<Exported, ParkedError>>,
) -> Result<(u64, u64), ParkedError> {
    let planned = operator.check_import(lines).await?;
    Ok((planned.to_import, planned.already_there))
}

/// The same, as an import that is not only planned tells it.
async fn import(
    operator: &Parked,
    lines: impl IntoIterator<Item = Result<Exported, ParkedError>>,
) -> Result<(u64, u64), ParkedError> {
    let imported = operator.import(&ImportRequest::default(), lines, never()).await?;
    Ok((imported.imported, imported.already_there))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_an_import_asks_for_the_work_queues_of_those_messages_alone_that_are_missing() {
    let fixture = Fixture::new("import-plan").await;
    fixture.declare().await;
    let parked = |body: &str| Publish::to_queue(fixture.parked()).message_id(body).body(body);
    fixture.client.publish_many(["one", "two", "two"].map(parked)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 3).await;
    let (mut exported, operator) = (Vec::new(), fixture.operator());
    let sink = |message| {
        exported.push(message);
        true
    };
    operator.export(&Filter::default(), None, sink).await.unwrap();
    let lines = || exported.iter().cloned().map(Ok);
    fixture.client.delete_queue(&fixture.queue).await.unwrap();

    assert_eq!(
        plan(&operator, lines()).await.unwrap(),
        (0, 3),
        "all are there, so nothing is needed"
    );
    assert_eq!(import(&operator, lines()).await.unwrap(), (0, 3));
    // One of the two that are alike is gone.
    fixture.client.purge(&fixture.parked()).await.unwrap();
    fixture.client.publish_many(["one", "two"].map(parked)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 2).await;
    let [planned, imported] = [plan(&operator, lines()).await, import(&operator, lines()).await];
    for error in [planned.unwrap_err().to_string(), imported.unwrap_err().to_string()] {
        assert!(
            error.contains(&format!("{:?}", fixture.queue)) && error.contains("does not exist"),
            "{error}"
        );
    }
    fixture.declare().await;
    assert_eq!(plan(&operator, lines()).await.unwrap(), (1, 2));
    assert_eq!(import(&operator, lines()).await.unwrap(), (1, 2));
    fixture.has_depth(&fixture.parked(), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_an_import_into_the_discarded_messages_declares_nothing_and_knows_what_is_there()
 {
    let fixture = Fixture::new("import-plan-bin").await;
    fixture.park(numbered(2)).await;
    let (mut exported, discarded) = (Vec::new(), format!("{}.discarded", fixture.namespace.name()));
    let sink = |message| {
        exported.push(message);
        true
    };
    fixture.operator().export(&Filter::default(), None, sink).await.unwrap();
    let lines = || exported.iter().cloned().map(Ok);
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    assert_eq!(plan(&bin, lines()).await.unwrap(), (2, 0));
    fixture.client.depth(&discarded).await.expect_err("the queue is not declared");
    assert_eq!(import(&bin, lines()).await.unwrap(), (2, 0));
    assert_eq!(plan(&bin, lines()).await.unwrap(), (0, 2));
    assert_eq!(import(&bin, lines()).await.unwrap(), (0, 2));
    fixture.has_depth(&discarded, 2).await;
}
