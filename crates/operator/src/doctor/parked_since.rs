//! How long a message has been parked, by its headers.

use lapin::BasicProperties;

use crate::parked::belief::believed;
use rehop::Timestamp;
use rehop::internals::Names;
use rehop::internals::at_rest::read;
use rehop::internals::names::EXPIRES_AT;

/// When a message was parked: as rehop wrote it, at its last failure, or when the broker
/// dead-lettered it. Of a message that has none of these, only the first delivery is known. Anybody
/// may have written these headers, so what is not to be believed, or not understood, is passed
/// over.
pub(super) fn parked_since(
    names: &Names,
    exchange: &str,
    properties: &BasicProperties,
) -> Option<Timestamp> {
    let at_rest = read(&believed(names, exchange, properties, EXPIRES_AT), EXPIRES_AT);
    let failed = at_rest.errors.last().map(|error| error.at);
    let dead_lettered = at_rest.deaths.first().and_then(|death| death.at);
    [at_rest.parked_at, failed, dead_lettered].into_iter().flatten().max().or(at_rest.first_seen)
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldArray, FieldTable};

    use super::*;
    use rehop::internals::names::{ERRORS, FIRST_SEEN_AT, PARKED_AT};

    /// 2023, in milliseconds.
    const THEN: i64 = 1_700_000_000_000;

    fn death(seconds: u64) -> AMQPValue {
        let mut table = FieldTable::default();
        table.insert("queue".into(), AMQPValue::LongString("orders".into()));
        table.insert("exchange".into(), AMQPValue::LongString("ns.return".into()));
        table.insert("reason".into(), AMQPValue::LongString("delivery_limit".into()));
        table.insert("time".into(), AMQPValue::Timestamp(seconds));
        AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(table)]))
    }

    fn since(headers: &[(&str, AMQPValue)]) -> Option<i64> {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        let properties = BasicProperties::default().with_headers(table);
        parked_since(&Names::new("ns"), "ns.park", &properties)
            .map(|since| since.as_millis() - THEN)
    }

    #[test]
    fn the_last_sign_of_an_end_tells_when_a_message_was_parked() {
        let at = |millis: i64| AMQPValue::LongLongInt(THEN + millis);
        let failed = |millis: i64| {
            format!(r#"{{"at":{},"attempt":1,"class":"c","message":"m"}}"#, THEN + millis)
        };
        let errors =
            || AMQPValue::LongString(format!("[{},{}]", failed(5000), failed(7000)).into());
        assert_eq!(since(&[(ERRORS, errors()), (FIRST_SEEN_AT, at(1000))]), Some(7000));
        assert_eq!(since(&[(ERRORS, errors()), ("x-death", death(1_700_000_009))]), Some(9000));
        assert_eq!(since(&[(ERRORS, errors()), (PARKED_AT, at(8000))]), Some(8000));
        assert_eq!(since(&[(FIRST_SEEN_AT, at(1000))]), Some(1000));
        assert_eq!(since(&[]), None);
    }

    #[test]
    fn headers_of_other_types_are_passed_over() {
        for strange in [
            AMQPValue::Void,
            AMQPValue::LongLongInt(5),
            AMQPValue::FieldArray(FieldArray::default()),
        ] {
            assert_eq!(since(&[(ERRORS, strange.clone()), ("x-death", strange)]), None);
        }
        assert_eq!(since(&[("x-death", death(u64::MAX))]), None);
    }
}
