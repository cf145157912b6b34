//! What a copy carries.

use super::*;

#[test]
fn what_would_loop_drop_duplicate_or_miscount_is_stripped() {
    let one = || AMQPValue::LongLongInt(1);
    let stripped = [
        "x-death",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-first-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
        "x-last-death-exchange",
        "x-delivery-count",
        "x-acquired-count",
        "CC",
        "BCC",
        "rehop-anything",
        "rehop-reason",
        "rehop-then-8000",
        "rehop-then-0",
    ];
    let kept =
        ["x-own", "cc", "x-deaths", "traceparent", "return-to", "wait-for", "then-8000", "x-delay"];
    let sent = headers(stripped.into_iter().chain(kept).map(|name| (name, one())));
    let first = properties(sent)
        .with_expiration("60000".into())
        .with_user_id("shop".into())
        .with_delivery_mode(1);
    let (delivery, _) = read_by(&contract(), delivered("shop", first));
    let trace = TraceHeaders::default();
    for copy in [
        contract()
            .checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &trace, Room::DEFAULT)
            .unwrap(),
        contract()
            .parked_copy(&delivery, &delivery.ledger, Reason::Exhausted, NOW, &trace, Room::DEFAULT)
            .properties,
    ] {
        let headers = copy.headers().as_ref().unwrap().inner().clone();
        for name in stripped.into_iter().filter(|name| *name != REASON) {
            assert_eq!(headers.get(name), None, "{name}");
        }
        assert_ne!(headers.get(REASON), Some(&one()));
        assert_eq!(headers[RETURN_TO], text(&contract().queue));
        for name in kept {
            assert_eq!(headers.get(name), Some(&one()), "{name}");
        }
        assert_eq!(
            (copy.expiration(), copy.user_id(), copy.delivery_mode()),
            (&None, &None, &Some(2))
        );
        assert_eq!(headers[USER_ID], text("shop"), "kept in a header of ours");
        assert_eq!(headers[CC], one());
    }
}

#[test]
fn what_was_stripped_stays_known_over_further_waits_and_cannot_be_forged() {
    let first = properties(headers([("CC", text("audit"))])).with_user_id("shop".into());
    let (delivery, _) = read_by(&contract(), delivered("shop", first));
    let (back, _) = read(RETURN, waiting(&delivery));
    let again = waiting(&back);
    assert_eq!((&again[USER_ID], &again[CC]), (&text("shop"), &text("audit")));
    let (forged, _) = read("shop", headers([(USER_ID, text("root")), (CC, text("all"))]));
    let copy = waiting(&forged);
    assert_eq!((copy.get(USER_ID), copy.get(CC)), (None, None));
}

#[test]
fn every_other_property_travels() {
    let short = |text: &str| ShortString::from(text);
    let all = properties(Headers::new())
        .with_content_type(short("a"))
        .with_content_encoding(short("b"))
        .with_correlation_id(short("c"))
        .with_reply_to(short("d"))
        .with_message_id(short("e"))
        .with_type(short("f"))
        .with_app_id(short("g"))
        .with_cluster_id(short("h"))
        .with_priority(3)
        .with_delivery_mode(2)
        .with_timestamp(1_700_000_000);
    let (delivery, _) = read_by(&contract(), delivered("shop", all.clone()));
    let copy = contract()
        .checked_wait_copy(
            &delivery,
            &delivery.ledger,
            a_wait(),
            &TraceHeaders::default(),
            Room::DEFAULT,
        )
        .unwrap();
    let without_headers =
        |properties: BasicProperties| properties.with_headers(FieldTable::default());
    assert_eq!(without_headers(copy), without_headers(all));
}

#[test]
fn trace_headers_are_replaced_and_never_stand_beside_others() {
    let old = ["traceparent", "tracestate", "baggage"].map(|name| (name, text("old")));
    let (delivery, _) = read("shop", headers(old.into_iter().chain([("own", text("kept"))])));
    let trace = TraceHeaders(vec![("traceparent", "new".to_owned())]);
    let copy = contract()
        .checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &trace, Room::DEFAULT)
        .unwrap();
    let headers = copy.headers().as_ref().unwrap().inner();
    assert_eq!(headers["traceparent"], text("new"));
    assert_eq!((headers.get("tracestate"), headers.get("baggage")), (None, None));
    assert_eq!(headers["own"], text("kept"));
}
