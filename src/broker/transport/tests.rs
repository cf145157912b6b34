use proptest::prelude::*;

use lapin::types::parsing::parse_field_table;

use super::addressed_method::AddressedMethod;
use super::closed_channels::ClosedChannels;
use super::content_header::ContentHeader;
use super::frames::{BODY, FrameRewriter, HEADER, METHOD, Rewrite, payload};
use super::inbound::Inbound;
use super::originals::{HEADERS, Originals, ROUTING_KEY};
use super::outbound::Outbound;
use crate::error::describe;
use crate::inputs::inputs;
use crate::wire::encoding::{Field, Readable, fields, put_short, put_sized, put_tagged};
use crate::wire::names::BYTES;

const CHANNEL: u16 = 7;

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(CHANNEL.to_be_bytes());
    put_sized(payload, &mut frame);
    frame.push(0xCE);
    frame
}

fn method(method: u8, before: &[u8], exchange: &[u8], routing_key: &[u8], after: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, method];
    payload.extend_from_slice(before);
    put_short(exchange, &mut payload);
    put_short(routing_key, &mut payload);
    payload.extend_from_slice(after);
    frame(METHOD, &payload)
}

fn deliver(exchange: &[u8], routing_key: &[u8]) -> Vec<u8> {
    method(60, b"\x03tag\0\0\0\0\0\0\0\x01\0", exchange, routing_key, &[])
}

fn publish(exchange: &[u8], routing_key: &[u8]) -> Vec<u8> {
    method(40, &[0, 0], exchange, routing_key, &[1])
}

type Named<'a> = [(&'a [u8], Vec<u8>)];

/// A content header with these headers, this correlation id and this message id.
fn header(headers: &Named<'_>, correlation_id: &[u8], message_id: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x24, 0x80];
    put_sized(&table(headers), &mut payload);
    put_short(correlation_id, &mut payload);
    put_short(message_id, &mut payload);
    frame(HEADER, &payload)
}

/// The content of a table.
fn table(named: &Named<'_>) -> Vec<u8> {
    let mut content = Vec::new();
    named.iter().for_each(|(name, value)| Field { name, value }.put(&mut content));
    content
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    put_tagged(tag, content, &mut value);
    value
}

/// What becomes of a stream that arrives in pieces of this size.
fn passed<R: Rewrite + Default>(stream: &[u8], piece: usize) -> Vec<u8> {
    let (mut frames, mut out) = (FrameRewriter::<R>::default(), Vec::new());
    for bytes in stream.chunks(piece) {
        frames.pass(bytes, &mut out);
    }
    out
}

/// The payloads of the frames in a stream.
fn payloads(stream: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut payloads) = (stream, Vec::new());
    while let Some([_, _, _, a, b, c, d]) = rest.first_chunk() {
        let (frame, after) = rest.split_at(8 + u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        payloads.push(payload(frame));
        rest = after;
    }
    payloads
}

/// Whether lapin can read a content header: the table after class, weight, size and flags, and the
/// two ids after it.
fn is_readable_by_lapin(payload: &[u8]) -> bool {
    let Ok((mut rest, _)) = parse_field_table(&payload[14..]) else { return false };
    while let [length, after @ ..] = rest {
        let (text, after) = after.split_at(usize::from(*length));
        if std::str::from_utf8(text).is_err() {
            return false;
        }
        rest = after;
    }
    true
}

/// A table in a table, and so on.
fn nested(depth: usize) -> Vec<u8> {
    (0..depth).fold(vec![b'V'], |value, _| tagged(b'F', &table(&[(b"in", value)])))
}

/// The same headers, in any order.
fn sorted(payload: &[u8]) -> (Vec<Vec<u8>>, &[u8]) {
    let size = u32::from_be_bytes(payload[14..18].try_into().unwrap()) as usize;
    let (content, rest) = payload[18..].split_at(size);
    let mut sorted: Vec<_> = fields(content)
        .unwrap()
        .into_iter()
        .map(|field| [field.name, field.value].concat())
        .collect();
    sorted.sort();
    (sorted, rest)
}

#[test]
fn the_size_of_frames_is_bounded_whatever_the_broker_proposes() {
    let tune = |frame_max: u32| {
        let (before, after) = ([0, 10, 0, 30, 7, 255], [0, 60]);
        frame(METHOD, &[&before[..], &frame_max.to_be_bytes(), &after].concat())
    };
    const MIB: u32 = 1024 * 1024;
    for (proposed, expected) in
        [(0, MIB), (1, 1), (128 * 1024, 128 * 1024), (MIB, MIB), (MIB + 1, MIB), (u32::MAX, MIB)]
    {
        assert_eq!(passed::<Inbound>(&tune(proposed), 5), tune(expected), "{proposed}");
    }
    // lapin refuses one that ends too early.
    let short = frame(METHOD, &[0, 10, 0, 30, 7, 255, 0]);
    assert_eq!(passed::<Inbound>(&short, 5), short);
}

#[test]
fn utf_8_passes_unchanged() {
    let headers = [
        (&b"caf\xC3\xA9"[..], tagged(b'S', b"\xFF\xFE")),
        (b"back\\slash", vec![b't', 1]),
        (b"deep", nested(64)),
    ];
    let content = [header(&headers, b"", b"m-1"), frame(BODY, b"hi")].concat();
    let (read, written) = (
        [deliver(b"", b"orders\\"), content.clone()].concat(),
        [publish(b"", b"orders\\"), content].concat(),
    );
    assert_eq!(passed::<Inbound>(&read, 5), read);
    assert_eq!(passed::<Outbound>(&written, 5), written);
}

#[test]
fn stand_ins_are_shown_and_a_header_has_the_originals() {
    let headers = [
        (&b"na\xEFve"[..], vec![b't', 1]),
        (b"in", tagged(b'F', &table(&[(b"\xFF", vec![b'V'])]))),
    ];
    let stream =
        [deliver(b"", b"M\xFCller"), header(&headers, b"\\xFF", b"\xFF"), frame(BODY, b"hi")]
            .concat();
    let read = passed::<Inbound>(&stream, usize::MAX);
    let payloads = payloads(&read);
    assert_eq!(AddressedMethod::parse(payloads[0]).unwrap().routing_key, b"M\\xFCller");
    let mut expected = Originals::default();
    expected.insert(ROUTING_KEY, b"M\xFCller".to_vec());
    expected.insert("message_id", vec![0xFF]);
    expected.insert(HEADERS, table(&headers));
    assert_eq!(ContentHeader::parse(payloads[1]).unwrap().take_originals(), expected);
    assert_eq!(
        payloads[1],
        payload(&header(&[(BYTES.as_bytes(), expected.write())], b"\\xFF", b"\\xFF"))
    );
    assert_eq!(payloads[2], b"hi");
}

#[test]
fn deeply_nested_headers_are_taken_out_and_written_back_unchanged() {
    let stream = [deliver(b"", b"q"), header(&[(b"deep", nested(15_000))], b"", b"m-1")].concat();
    let read = passed::<Inbound>(&stream, usize::MAX);
    assert!(is_readable_by_lapin(payloads(&read)[1]));
    let copy = [publish(b"", b"q"), frame(HEADER, payloads(&read)[1])].concat();
    assert_eq!(payloads(&passed::<Outbound>(&copy, usize::MAX))[1], payloads(&stream)[1]);
}

/// A larger frame than the broker's would end the connection, and the producer's may be full.
#[test]
fn a_frame_grows_by_little_however_many_headers_cannot_be_read() {
    let names: Vec<_> = (0..9000_u16).map(|n| [&b"\xFF"[..], &n.to_be_bytes()].concat()).collect();
    let headers: Vec<_> = names.iter().map(|name| (&name[..], vec![b'V'])).collect();
    let stream =
        [deliver(b"", &[0xFF; 255]), header(&headers, &[0xFF; 255], &[0xFF; 255])].concat();
    let read = passed::<Inbound>(&stream, usize::MAX);
    assert!(read.len() < stream.len() + 1000, "{} became {}", stream.len(), read.len());
}

/// A parked copy is published with the queue's name as its routing key, and replayed with its old
/// one.
#[test]
fn an_original_that_stands_nowhere_stays_in_the_header() {
    let read =
        passed::<Inbound>(&[deliver(b"", b"\xFF"), header(&[], b"", b"m-1")].concat(), usize::MAX);
    let copy = [publish(b"park", b"orders"), frame(HEADER, payloads(&read)[1])].concat();
    let parked = passed::<Outbound>(&copy, usize::MAX);
    assert_eq!(parked, copy);
    assert_eq!(passed::<Inbound>(&parked, usize::MAX), parked);
    let replayed = [publish(b"", b"\\xFF"), frame(HEADER, payloads(&parked)[1])].concat();
    let sent = passed::<Outbound>(&replayed, usize::MAX);
    assert_eq!(sent, [publish(b"", b"\xFF"), header(&[], b"", b"m-1")].concat());
}

/// A producer that writes the header itself moves no message, adds no header that a copy must not
/// have, and breaks no connection.
#[test]
fn a_forged_header_does_no_harm() {
    let mut forged = Originals::default();
    forged.insert(ROUTING_KEY, b"elsewhere".to_vec());
    let harmless = (&b"\xFF"[..], vec![b'V']);
    let all = [
        (&b"CC"[..], tagged(b'A', &tagged(b'S', b"elsewhere"))),
        (b"x-death", nested(65)),
        (b"rehop-attempt", nested(65)),
        (b"malformed\xFF", tagged(b'F', b"\x09")),
        harmless.clone(),
    ];
    forged.insert(HEADERS, table(&all));
    let stream =
        [publish(b"", b"b\\ack"), header(&[(BYTES.as_bytes(), forged.write())], b"", b"m-1")]
            .concat();
    let written = passed::<Outbound>(&stream, usize::MAX);
    forged.remove(HEADERS);
    let left = [harmless, (BYTES.as_bytes(), forged.write())];
    assert_eq!(written, [publish(b"", b"b\\ack"), header(&left, b"", b"m-1")].concat());
}

/// The payload of a method that closes a channel.
fn close(code: u16, text: &[u8]) -> Vec<u8> {
    let mut payload = [&[0, 20, 0, 40], &code.to_be_bytes()[..]].concat();
    put_short(text, &mut payload);
    payload.extend([0; 4]);
    payload
}

#[test]
fn why_the_broker_closed_a_channel_is_kept_until_another_one_has_its_number() {
    let closed = ClosedChannels::default();
    let mut frames = FrameRewriter::of(Inbound::noting(closed.clone()));
    let mut after = |payload: &[u8]| {
        for bytes in frame(METHOD, payload).chunks(3) {
            frames.pass(bytes, &mut Vec::new());
        }
        [CHANNEL, CHANNEL + 1].map(|channel| closed.error(channel).map(|error| describe(&error)))
    };
    assert_eq!(after(&[0, 20, 0, 11, 0, 0, 0, 0]), [None, None]);
    let why = |text: &str| [Some(text.to_owned()), None];
    assert_eq!(
        after(&close(406, b"PRECONDITION_FAILED - late")),
        why("PRECONDITION_FAILED - late")
    );
    // 3.10 cuts long texts in the middle of a character.
    assert_eq!(after(&close(404, b"no queue \xC3")), why(r"no queue \xC3"));
    assert_eq!(after(&[0, 60, 0, 60]), why(r"no queue \xC3"));
    assert_eq!(after(&[0, 20, 0, 11, 0, 0, 0, 0]), [None, None]);
    assert_eq!(after(&[0, 20, 0, 40, 1]), [None, None], "it ends too early");
}

/// For instance because the channel was closed in between.
#[test]
fn a_publish_whose_content_never_comes_is_written_before_the_channels_next_method() {
    let stream =
        [publish(b"", b"\\xFF"), frame(METHOD, &[0, 20, 0, 40]), publish(b"", b"q")].concat();
    assert_eq!(passed::<Outbound>(&stream, 3), stream);
}

#[test]
fn bytes_that_are_not_a_frame_pass_unchanged() {
    for stream in [&b"AMQP\0\0\x09\x01"[..], b"HTTP/1.1 400 Bad Request", b"\x02\0\0", b"\x01"] {
        for piece in 1..9 {
            let out = passed::<Inbound>(stream, piece);
            // Fewer than 7 bytes may be the head of a frame, so they are kept.
            assert_eq!(out, if stream.len() < 7 { &[] } else { stream }, "{stream:?}");
        }
    }
}

fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..=longest),
        // Short enough for the same text to come twice, and texts like stand-ins.
        prop::sample::select(vec![&b""[..], b"a", b"\xFF", b"\\xFF", b"\\x5CxFF", b"caf\xC3\xA9"])
            .prop_map(<[u8]>::to_vec),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let flat = prop_oneof![
        bytes(300).prop_map(|content| tagged(b'S', &content)),
        bytes(30).prop_map(|content| tagged(b'x', &content)),
        any::<i64>().prop_map(|number| [&b"l"[..], &number.to_be_bytes()].concat()),
        any::<[u8; 5]>().prop_map(|decimal| [&b"D"[..], &decimal].concat()),
        any::<i16>().prop_map(|number| [&b"s"[..], &number.to_be_bytes()].concat()),
        Just(vec![b'V']),
        (60_usize..80).prop_map(nested),
    ];
    flat.prop_recursive(4, 24, 4, |inner| {
        let tables = prop::collection::vec((bytes(255), inner.clone()), 0..4).prop_map(|named| {
            let named: Vec<_> =
                named.iter().map(|(name, value)| (&name[..], value.clone())).collect();
            tagged(b'F', &table(&named))
        });
        let arrays =
            prop::collection::vec(inner, 0..4).prop_map(|values| tagged(b'A', &values.concat()));
        prop_oneof![tables, arrays]
    })
}

proptest! {
    #![proptest_config(inputs(256))]

    /// As a consumer that publishes everything that it has read.
    #[test]
    fn every_message_is_readable_and_written_back_unchanged(
        named in prop::collection::vec((bytes(255), value()), 0..5),
        (exchange, routing_key) in (bytes(255), bytes(255)),
        (correlation_id, message_id) in (bytes(255), bytes(255)),
        piece in prop_oneof![1_usize..64, Just(usize::MAX)],
    ) {
        let headers: Vec<_> = named.iter().map(|(name, value)| (&name[..], value.clone())).collect();
        let is_malformed = |(name, value): &(&[u8], Vec<u8>)| Field { name, value }.readable() == Readable::Malformed;
        prop_assert!(!headers.iter().any(is_malformed));
        let content = [header(&headers, &correlation_id, &message_id), frame(BODY, &routing_key)].concat();
        let read = passed::<Inbound>(&[deliver(&exchange, &routing_key), content.clone()].concat(), piece);
        let read = payloads(&read);
        let shown = AddressedMethod::parse(read[0]).unwrap();
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        prop_assert!(is_text(shown.exchange) && is_text(shown.routing_key) && is_readable_by_lapin(read[1]));

        let copy = [publish(shown.exchange, shown.routing_key), frame(HEADER, read[1]), frame(BODY, read[2])].concat();
        let written = passed::<Outbound>(&copy, piece);
        let (written, expected) = (payloads(&written), [publish(&exchange, &routing_key), content].concat());
        let expected = payloads(&expected);
        prop_assert_eq!((written[0], written[2]), (expected[0], expected[2]));
        prop_assert_eq!(sorted(written[1]), sorted(expected[1]));
    }

    #[test]
    fn any_bytes_pass_and_nothing_panics(stream in bytes(600), piece in 1_usize..64) {
        passed::<Inbound>(&stream, piece);
        passed::<Outbound>(&stream, piece);
        let garbage = [frame(METHOD, &stream), frame(HEADER, &stream), frame(METHOD, &[])].concat();
        prop_assert!(passed::<Inbound>(&garbage, piece).len() >= garbage.len());
        prop_assert!(passed::<Outbound>(&garbage, piece).len() >= garbage.len());
    }
}
