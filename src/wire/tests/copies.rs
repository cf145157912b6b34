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
    let kept = ["x-own", "cc", "x-deaths", "traceparent", "return-to", "wait-for", "then-8000", "x-delay"];
    let sent = headers(stripped.into_iter().chain(kept).map(|name| (name, one())));
    let first = properties(sent).with_expiration("60000".into()).with_user_id("shop".into()).with_delivery_mode(1);
    let (delivery, _) = read_by(&contract(), delivered("shop", first));
    let trace = TraceHeaders::default();
    for copy in [
        contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &trace).unwrap(),
        contract().parked_copy(&delivery, &delivery.ledger, Reason::Exhausted, NOW, &trace),
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
        assert_eq!((copy.expiration(), copy.user_id(), copy.delivery_mode()), (&None, &None, &Some(2)));
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
    let copy = contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default()).unwrap();
    let without_headers = |properties: BasicProperties| properties.with_headers(FieldTable::default());
    assert_eq!(without_headers(copy), without_headers(all));
}

#[test]
fn the_history_makes_room_before_a_copy_is_refused() {
    let errors: Vec<_> = (0..8).map(|n| ErrorRecord::new(NOW, n, "class", &"e".repeat(1000))).collect();
    let own = |bytes: usize| {
        let (mut delivery, _) = read("shop", headers([("own", AMQPValue::LongString("x".repeat(bytes).into()))]));
        delivery.ledger.errors.clone_from(&errors);
        contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default())
    };
    let carried = |copy: BasicProperties| copy.headers().as_ref().unwrap().inner().contains_key(ERRORS);
    assert!(carried(own(100_000).unwrap()));
    assert!(!carried(own(MAX_HEADER_BYTES - 5_000).unwrap()));
    let error = own(MAX_HEADER_BYTES).unwrap_err();
    assert!(error.to_string().starts_with("the message's headers take 129"), "{error}");
}

#[test]
fn a_copy_may_have_124_kibibytes_of_headers_to_the_byte() {
    assert_eq!(MAX_HEADER_BYTES, 126_976);
    let with_own = |bytes: usize| {
        let (mut delivery, _) = read("shop", headers([("own", AMQPValue::LongString("x".repeat(bytes).into()))]));
        delivery.ledger.errors.push(ErrorRecord::new(NOW, 1, "class", "message"));
        contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default())
    };
    let headers_of = |copy: &BasicProperties| copy.headers().as_ref().unwrap().inner().clone();
    let small = headers_of(&with_own(0).unwrap());
    let room = MAX_HEADER_BYTES - encoded_size(&small);
    let full = headers_of(&with_own(room).unwrap());
    assert!(full.contains_key(ERRORS) && encoded_size(&full) == MAX_HEADER_BYTES);
    let forgetful = headers_of(&with_own(room + 1).unwrap());
    assert!(!forgetful.contains_key(ERRORS));
    let room = room + 1 + MAX_HEADER_BYTES - encoded_size(&forgetful);
    assert_eq!(encoded_size(&headers_of(&with_own(room).unwrap())), MAX_HEADER_BYTES);
    assert_eq!(with_own(room + 1).unwrap_err(), HeadersTooLarge { bytes: MAX_HEADER_BYTES + 1 });
}

#[test]
fn trace_headers_are_replaced_and_never_stand_beside_others() {
    let old = ["traceparent", "tracestate", "baggage"].map(|name| (name, text("old")));
    let (delivery, _) = read("shop", headers(old.into_iter().chain([("own", text("kept"))])));
    let trace = TraceHeaders(vec![("traceparent", "new".to_owned())]);
    let copy = contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &trace).unwrap();
    let headers = copy.headers().as_ref().unwrap().inner();
    assert_eq!(headers["traceparent"], text("new"));
    assert_eq!((headers.get("tracestate"), headers.get("baggage")), (None, None));
    assert_eq!(headers["own"], text("kept"));
}
