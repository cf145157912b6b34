//! Random headers, and everything that a policy can make of a message.

use super::*;

/// Numbers at the edges of every range that matters.
fn numbers() -> impl Strategy<Value = i64> {
    let now = NOW.as_millis();
    let edges = [
        i64::MIN,
        i64::MIN + 1,
        -1,
        0,
        1,
        2,
        999_999,
        1_000_000,
        1_000_001,
        now / 1000,
        now - 1,
        now,
        now + 1,
    ];
    let ends = [
        SANE_MILLIS.start - 1,
        SANE_MILLIS.start,
        SANE_MILLIS.end - 1,
        SANE_MILLIS.end,
        i64::MAX - 1,
        i64::MAX,
    ];
    prop_oneof![select([edges.as_slice(), ends.as_slice()].concat()), any::<i64>()]
}

/// Every type that a field can have, to three levels.
pub(super) fn values() -> impl Strategy<Value = AMQPValue> {
    let words =
        select(vec!["", " 7 ", "-7", "1700000000000", "1e3", "NaN", "orders", "\u{0}", "ключ"]);
    let leaf = prop_oneof![
        5 => Just(AMQPValue::Void),
        5 => any::<bool>().prop_map(AMQPValue::Boolean),
        5 => any::<i8>().prop_map(AMQPValue::ShortShortInt),
        5 => any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        5 => any::<i16>().prop_map(AMQPValue::ShortInt),
        5 => any::<u16>().prop_map(AMQPValue::ShortUInt),
        5 => any::<i32>().prop_map(AMQPValue::LongInt),
        5 => any::<u32>().prop_map(AMQPValue::LongUInt),
        20 => numbers().prop_map(AMQPValue::LongLongInt),
        10 => any::<u64>().prop_map(AMQPValue::Timestamp),
        5 => (-1e12f32..1e12).prop_map(AMQPValue::Float),
        5 => (-1e300f64..1e300).prop_map(AMQPValue::Double),
        5 => (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        5 => texts(60).prop_map(|text| AMQPValue::ShortString(text.into())),
        10 => words.prop_map(|text| AMQPValue::LongString(text.into())),
        5 => numbers().prop_map(|number| AMQPValue::LongString(number.to_string().into())),
        5 => prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| AMQPValue::LongString(LongString::from(bytes))),
        5 => prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| AMQPValue::ByteArray(ByteArray::from(bytes))),
        1 => Just(AMQPValue::LongString("x".repeat(128 * 1024).into())),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| AMQPValue::FieldArray(FieldArray::from(values))),
            prop::collection::btree_map(names(), inner, 0..4)
                .prop_map(|table| AMQPValue::FieldTable(table.into())),
        ]
    })
}

pub(super) fn names() -> impl Strategy<Value = ShortString> {
    prop_oneof![
        select(vec!["at", "attempt", "class", "message", "", "x", "Überschrift"])
            .prop_map(ShortString::from),
        "[a-z-]{1,20}".prop_map(|name| ShortString::from(name.as_str())),
    ]
}

/// Whatever properties there are, without headers.
pub(super) fn all_properties(
    texts: &[Option<String>],
    number: Option<u64>,
    bytes: [Option<u8>; 2],
) -> BasicProperties {
    type Set = fn(BasicProperties, ShortString) -> BasicProperties;
    const SET: [Set; 10] = [
        BasicProperties::with_content_type,
        BasicProperties::with_content_encoding,
        BasicProperties::with_correlation_id,
        BasicProperties::with_reply_to,
        BasicProperties::with_message_id,
        BasicProperties::with_type,
        BasicProperties::with_app_id,
        BasicProperties::with_cluster_id,
        BasicProperties::with_expiration,
        BasicProperties::with_user_id,
    ];
    let mut all = BasicProperties::default();
    for (set, text) in SET.into_iter().zip(texts) {
        if let Some(text) = text {
            all = set(all, ShortString::from(text.as_str()));
        }
    }
    if let Some(number) = number {
        all = all.with_timestamp(number);
    }
    let [priority, delivery_mode] = bytes;
    if let Some(priority) = priority {
        all = all.with_priority(priority);
    }
    if let Some(delivery_mode) = delivery_mode {
        all = all.with_delivery_mode(delivery_mode);
    }
    all
}

fn moments() -> impl Strategy<Value = Timestamp> {
    SANE_MILLIS.prop_map(Timestamp::from_millis)
}

fn past() -> impl Strategy<Value = Timestamp> {
    (SANE_MILLIS.start..=NOW.as_millis()).prop_map(Timestamp::from_millis)
}

/// What a policy can make of a message: waits last 30 days each at most, and their legs too.
fn waits() -> impl Strategy<Value = Wait> {
    const MONTH: u64 = 30 * 24 * 60 * 60 * 1000;
    (past(), 1..=MONTH, 0..=MONTH).prop_map(|(since, leg, more)| Wait {
        since,
        due: since + Duration::from_millis(leg + more),
        leg: Duration::from_millis(leg),
        path: Path::Tier,
    })
}

prop_compose! {
    fn records()(at in any::<i64>(), attempt in any::<u32>(), class in texts(200), message in texts(1_200)) -> ErrorRecord {
        ErrorRecord::new(Timestamp::from_millis(at), attempt, &class, &message)
    }
}

prop_compose! {
    fn ledgers()(
        (attempts, hop) in (0..=MAX_COUNT, 1..=MAX_COUNT),
        first_seen in past(),
        first_failed in moments(),
        deadline in prop::option::of(moments()),
        wait in waits(),
        errors in prop::collection::vec(records(), 0..=MAX_ERRORS),
        chain_id in prop::option::of("[ -~]{0,255}"),
    ) -> Ledger {
        let wait_unfinished = wait.unfinished(NOW);
        // The oldest failure that is kept may be the first one.
        let first_failed = errors.first().map(|oldest: &ErrorRecord| if attempts % 2 == 0 { oldest.at } else { first_failed });
        Ledger {
            attempts, hop, first_seen, first_failed, deadline, wait: Some(wait), wait_unfinished, errors, chain_id, is_copy: true,
            ..fresh()
        }
    }
}

proptest! {
    #![proptest_config(inputs(400))]

    #[test]
    fn what_a_copy_carries_into_a_wait_is_read_back_when_it_returns(
        ledger in ledgers(), exchange in "[ -~]{0,255}", routing_key in "[ -~]{0,255}",
    ) {
        let first = Delivery {
            origin: address(&exchange, &routing_key), ..delivered(&exchange, BasicProperties::default())
        };
        let copy = contract().checked_wait_copy(&first, &ledger, ledger.wait.unwrap(), &TraceHeaders::default(), Room::DEFAULT).unwrap();
        // The copy comes home with the routing key that it was sent with.
        let home = Delivery { address: address(RETURN, &routing_key), ..delivered(RETURN, copy) };
        let (back, ignored) = read_by(&contract(), home);
        prop_assert_eq!(ignored, vec![]);
        prop_assert_eq!(back.ledger, ledger);
        prop_assert_eq!((back.origin.exchange.as_str(), back.origin.routing_key.as_str()), (exchange.as_str(), routing_key.as_str()));
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    /// All headers of ours at once, on our own copy and on a first delivery.
    #[test]
    fn no_header_makes_reading_or_copying_panic(
        entries in prop::collection::vec((select(READ.to_vec()), values()), 0..READ.len() + 4),
        others in prop::collection::vec((select(vec![USER_ID, CC, "CC", "BCC", "x-death", RETURN_TO, "rehop-then-1", "x-delivery-count", "x-acquired-count"]), values()), 0..4),
        is_own_copy in any::<bool>(), redelivered in any::<bool>(), max_age in prop::option::of(any::<u64>()),
    ) {
        let sent = headers(entries.into_iter().chain(others));
        let exchange = if is_own_copy { RETURN } else { "shop" };
        let delivery = Delivery { redelivered, ..delivered(exchange, properties(sent)) };
        let contract = Contract { max_age: max_age.map(Duration::from_millis), ..contract() };
        let (delivery, ignored) = read_by(&contract, delivery);
        let mut warned: Vec<_> = ignored.iter().map(|ignored| ignored.header.clone()).collect();
        warned.sort();
        warned.dedup();
        prop_assert_eq!(warned.len(), ignored.len(), "one warning per header: {:?}", ignored);
        let ledger = &delivery.ledger;
        prop_assert!(ledger.attempts <= MAX_COUNT && ledger.hop <= MAX_COUNT && ledger.redeliveries.unwrap_or(0) <= MAX_COUNT);
        prop_assert!(ledger.first_seen <= NOW);
        prop_assert!(ledger.errors.len() <= MAX_ERRORS);
        if let Some(wait) = ledger.wait {
            prop_assert!(wait.due.since(wait.since) <= 2 * crate::wait::MAX_DELAY, "{:?}", wait);
        }
        if is_own_copy {
            prop_assert!(ledger.is_copy);
        } else {
            let untouched = Ledger { redeliveries: ledger.redeliveries, deadline: ledger.deadline, ..fresh() };
            prop_assert_eq!(ledger, &untouched, "a first delivery's ledger is not believed");
            prop_assert_eq!((delivery.origin.exchange.as_str(), delivery.origin.routing_key.as_str()), ("shop", "order.created"));
        }
        if let Ok(copy) = contract.checked_wait_copy(&delivery, ledger, a_wait(), &TraceHeaders::default(), Room::DEFAULT) {
            prop_assert!(encoded(&copy) <= FRAME_LIMIT);
        }
        let parked = contract.parked_copy(&delivery, ledger, Reason::Exhausted, NOW, &TraceHeaders::default(), Room::DEFAULT);
        prop_assert!(encoded(&parked.properties) <= FRAME_LIMIT);
    }
}

proptest! {
    #![proptest_config(inputs(6_000))]

    /// Everything in order but one header.
    #[test]
    fn one_bad_header_costs_one_warning_and_no_other_header(
        header in select(READ.to_vec()), value in values(),
    ) {
        let mut sent = well_formed();
        sent.insert(header.into(), value);
        let (delivery, ignored) = read(RETURN, sent);
        prop_assert!(ignored.len() <= 1, "{:?}", ignored);
        prop_assert!(ignored.iter().all(|ignored| ignored.header == header));
        let (good, _) = read(RETURN, well_formed());
        if header != ATTEMPT { prop_assert_eq!(delivery.ledger.attempts, good.ledger.attempts) }
        if ![HOP, DEFERS].contains(&header) { prop_assert_eq!(delivery.ledger.hop, good.ledger.hop) }
        if header != EXPIRES_AT { prop_assert_eq!(delivery.ledger.deadline, good.ledger.deadline) }
        if header != ERRORS { prop_assert_eq!(delivery.ledger.errors, good.ledger.errors) }
        if header != CHAIN_ID { prop_assert_eq!(delivery.ledger.chain_id, good.ledger.chain_id) }
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    #[test]
    fn a_producers_own_headers_return_as_they_were(
        own in prop::collection::btree_map("[a-z]{1,12}|own-[a-z-]{1,12}", values(), 0..8),
    ) {
        let own: Headers = own.into_iter().map(|(name, value)| (ShortString::from(name.as_str()), value)).collect();
        let (delivery, _) = read("shop", own.clone());
        if let Ok(copy) = contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default(), Room::DEFAULT) {
            let carried = copy.headers().as_ref().unwrap().inner().clone();
            prop_assert!(own.iter().all(|(name, value)| carried.get(name) == Some(value)));
        }
    }
}

proptest! {
    #![proptest_config(inputs(400))]

    #[test]
    fn the_size_of_properties_is_what_goes_over_the_wire(
        own in prop::option::of(prop::collection::btree_map(names(), values(), 0..20)), texts in prop::collection::vec(prop::option::of("[ -~]{0,255}"), 10),
        number in prop::option::of(any::<u64>()), bytes in prop::array::uniform2(prop::option::of(any::<u8>())),
    ) {
        let set = all_properties(&texts, number, bytes);
        let all = match own {
            Some(own) => set.with_headers(FieldTable::from(own)),
            None => set,
        };
        prop_assert_eq!(properties_size(&all) + CLASS_WEIGHT_AND_BODY_SIZE, encoded(&all));
    }
}

proptest! {
    #![proptest_config(inputs(60))]

    #[test]
    fn whatever_is_filled_in_a_copy_fits_into_a_frame_or_is_refused(filling in 100_000usize..140_000, index in any::<Index>()) {
        let value = match index.index(3) {
            0 => AMQPValue::LongString("x".repeat(filling).into()),
            1 => AMQPValue::ByteArray(ByteArray::from(vec![0; filling])),
            _ => AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Void; filling])),
        };
        let mut sent = well_formed();
        sent.insert("own".into(), value);
        let (delivery, _) = read(RETURN, sent);
        match contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default(), Room::DEFAULT) {
            Ok(copy) => prop_assert!(encoded(&copy) <= FRAME_LIMIT),
            Err(HeadersTooLarge { bytes, limit }) => prop_assert!(filling + 8_192 > limit, "{filling} was refused as {bytes}"),
        }
    }
}
