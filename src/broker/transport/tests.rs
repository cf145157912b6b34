use proptest::prelude::*;

use lapin::types::parsing::parse_field_table;

use super::address::Addressed;
use super::content::Content;
use super::frames::{Frames, HEADER, METHOD, Rewrite, payload};
use super::inward::Inward;
use super::kept::Kept;
use super::outward::Outward;
use super::stand_in::stand_in;
use super::values::{is_value, put_short, put_sized, put_tagged};
use crate::inputs::inputs;
use crate::wire::names::BYTES;

const CHANNEL: u16 = 7;
const BODY: u8 = 3;

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

/// A content header with these headers and this message id.
fn header(headers: &[(&[u8], Vec<u8>)], message_id: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x20, 0x80];
    put_sized(&fields(headers), &mut payload);
    put_short(message_id, &mut payload);
    frame(HEADER, &payload)
}

fn fields(headers: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in headers {
        put_short(name, &mut fields);
        fields.extend_from_slice(value);
    }
    fields
}

fn tagged(tag: u8, held: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    put_tagged(tag, held, &mut value);
    value
}

/// What becomes of a stream that arrives in pieces of this size.
fn passed<R: Rewrite + Default>(stream: &[u8], piece: usize) -> Vec<u8> {
    let (mut frames, mut out) = (Frames::<R>::default(), Vec::new());
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

/// Whether lapin can read the headers of a content header.
fn is_readable_by_lapin(payload: &[u8]) -> bool {
    // After the class, the weight, the size and the flags; only what comes before the headers is skipped.
    parse_field_table(&payload[14..]).is_ok()
}

/// A table in a table, and so on.
fn nested(depth: usize) -> Vec<u8> {
    (0..depth).fold(vec![b'V'], |value, _| tagged(b'F', &fields(&[(b"in", value)])))
}

#[test]
fn what_is_utf_8_passes_as_it_is() {
    let headers =
        [(&b"caf\xC3\xA9"[..], tagged(b'S', b"\xFF\xFE")), (b"back\\slash", vec![b't', 1]), (b"deep", nested(64))];
    let stream = [deliver(b"", b"orders\\"), header(&headers, b"m-1"), frame(BODY, b"hi")].concat();
    assert_eq!(passed::<Inward>(&stream, 5), stream);
    let stream = [publish(b"", b"orders\\"), header(&headers, b"m-1"), frame(BODY, b"hi")].concat();
    assert_eq!(passed::<Outward>(&stream, 5), stream);
}

#[test]
fn bytes_are_shown_by_stand_ins_and_a_header_says_for_which_they_stand() {
    let headers = [(&b"na\xEFve"[..], tagged(b'F', &fields(&[(b"\xFFin", vec![b't', 1])])))];
    let stream = [deliver(b"", b"M\xFCller"), header(&headers, b"\x8F\x01"), frame(BODY, b"hi")].concat();
    let read = passed::<Inward>(&stream, usize::MAX);
    let payloads = payloads(&read);
    assert_eq!(Addressed::of(payloads[0]).unwrap().routing_key, b"M\\xFCller");
    let mut content = Content::of(payloads[1]).unwrap();
    let kept = content.take_kept();
    let stand_ins: Vec<_> = kept.texts.keys().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    assert_eq!(stand_ins, ["M\\xFCller", "\\x8F\u{1}", "\\xFFin", "na\\xEFve"]);
    assert_eq!(payloads[2], b"hi");
    assert!(is_readable_by_lapin(payloads[1]));
}

#[test]
fn what_is_nested_too_deeply_is_shown_as_bytes_and_written_as_it_was() {
    let stream = [deliver(b"", b"q"), header(&[(b"deep", nested(20_000))], b"m-1")].concat();
    let read = passed::<Inward>(&stream, usize::MAX);
    assert!(is_readable_by_lapin(payloads(&read)[1]));
    let written = [publish(b"", b"q"), payloads(&read)[1].to_vec()];
    let written = passed::<Outward>(&[&written[0][..], &frame(HEADER, &written[1])].concat(), usize::MAX);
    assert_eq!(payloads(&written)[1], payloads(&stream)[1]);
}

/// A parked copy is published with the queue's name as its routing key.
#[test]
fn what_stands_in_no_text_of_a_copy_stays_in_its_header() {
    let read = passed::<Inward>(&[deliver(b"", b"\xFF"), header(&[], b"m-1")].concat(), usize::MAX);
    let copy = [publish(b"park", b"orders"), frame(HEADER, payloads(&read)[1])].concat();
    let parked = passed::<Outward>(&copy, usize::MAX);
    assert_eq!(parked, copy);
    // It is replayed with its own.
    let replayed = [publish(b"", b"\\xFF"), frame(HEADER, payloads(&parked)[1])].concat();
    let sent = passed::<Outward>(&replayed, usize::MAX);
    assert_eq!(sent, [publish(b"", b"\xFF"), header(&[], b"m-1")].concat());
}

/// Whoever writes the header himself changes no more than his own message's bytes, and no connection is lost over it.
#[test]
fn a_header_of_somebody_else_moves_no_message_and_writes_no_malformed_value() {
    let forged = Kept { texts: [(b"b\\ack".to_vec(), b"elsewhere".to_vec())].into(), values: vec![b"bytes".to_vec()] };
    let headers = [(&b"bytes"[..], tagged(b'x', b"F\0\0\0\x09")), (BYTES.as_bytes(), forged.write())];
    let stream = [publish(b"", b"b\\ack"), header(&headers, b"m-1")].concat();
    let written = passed::<Outward>(&stream, usize::MAX);
    assert_eq!(Addressed::of(payloads(&written)[0]).unwrap().routing_key, b"b\\ack");
    let kept = Kept { values: vec![b"bytes".to_vec()], ..Kept::default() };
    let headers = [headers[0].clone(), (BYTES.as_bytes(), kept.write())];
    assert_eq!(payloads(&written)[1], payload(&header(&headers, b"m-1")));
}

#[test]
fn what_is_no_frame_passes_as_it_comes() {
    for stream in [&b"AMQP\0\0\x09\x01"[..], b"HTTP/1.1 400 Bad Request", b"\x02\0\0", b"\x01"] {
        for piece in 1..9 {
            let (mut frames, mut out) = (Frames::<Inward>::default(), Vec::new());
            stream.chunks(piece).for_each(|bytes| frames.pass(bytes, &mut out));
            assert!(stream.starts_with(&out) && (out.len() == stream.len() || stream.len() < 7), "{stream:?} {out:?}");
        }
    }
}

fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..=longest), "[a-zé\\\\]{0,9}".prop_map(String::into_bytes),]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let flat = prop_oneof![
        bytes(300).prop_map(|held| tagged(b'S', &held)),
        bytes(30).prop_map(|held| tagged(b'x', &held)),
        any::<i64>().prop_map(|number| [&b"l"[..], &number.to_be_bytes()].concat()),
        any::<[u8; 5]>().prop_map(|decimal| [&b"D"[..], &decimal].concat()),
        any::<i16>().prop_map(|number| [&b"s"[..], &number.to_be_bytes()].concat()),
        Just(vec![b'V']),
        (60_usize..80).prop_map(nested),
    ];
    flat.prop_recursive(4, 24, 4, |inner| {
        let table = prop::collection::vec((bytes(255), inner.clone()), 0..4).prop_map(|named| {
            let named: Vec<_> = named.iter().map(|(name, value)| (&name[..], value.clone())).collect();
            tagged(b'F', &fields(&named))
        });
        let array = prop::collection::vec(inner, 0..4).prop_map(|values| tagged(b'A', &values.concat()));
        prop_oneof![table, array]
    })
}

proptest! {
    #![proptest_config(inputs(256))]

    /// As a consumer passes a message on with all that it has read.
    #[test]
    fn lapin_can_read_each_message_and_what_it_passes_on_is_the_message_as_it_was(
        named in prop::collection::vec((bytes(255), value()), 0..5),
        (exchange, routing_key, message_id) in (bytes(255), bytes(255), bytes(255)),
        piece in prop_oneof![1_usize..64, Just(usize::MAX)],
    ) {
        let headers: Vec<_> = named.iter().map(|(name, value)| (&name[..], value.clone())).collect();
        prop_assert!(headers.iter().all(|(name, value)| *name != BYTES.as_bytes() && is_value(value)));
        let stream = [deliver(&exchange, &routing_key), header(&headers, &message_id), frame(BODY, &routing_key)].concat();
        let read = passed::<Inward>(&stream, piece);
        let read = payloads(&read);
        let shown = Addressed::of(read[0]).unwrap();
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        prop_assert!(is_text(shown.exchange) && is_text(shown.routing_key) && is_readable_by_lapin(read[1]));

        let copy = [publish(shown.exchange, shown.routing_key), frame(HEADER, read[1]), frame(BODY, read[2])].concat();
        let written = passed::<Outward>(&copy, piece);
        let expected = [publish(&exchange, &routing_key), header(&headers, &message_id), frame(BODY, &routing_key)].concat();
        prop_assert_eq!(written, expected);
    }

    #[test]
    fn any_bytes_pass_and_nothing_panics(stream in bytes(600), piece in 1_usize..64) {
        passed::<Inward>(&stream, piece);
        passed::<Outward>(&stream, piece);
        let garbage = [frame(METHOD, &stream), frame(HEADER, &stream)].concat();
        prop_assert!(passed::<Inward>(&garbage, piece).len() >= garbage.len());
        prop_assert_eq!(stand_in(&stream).is_none(), std::str::from_utf8(&stream).is_ok());
    }
}
