//! The values of headers, without lapin's types.

use lapin::types::{
    AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString, ShortString,
};

use crate::retry::ledger::cut;

/// The value of a header, borrowed from its message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum HeaderValue<'a> {
    /// No value.
    Void,
    /// A boolean.
    Bool(bool),
    /// Any of AMQP's integers.
    Int(i64),
    /// A float or a double.
    Float(f64),
    /// A decimal number: value × 10^-scale.
    Decimal {
        /// How many digits follow the decimal point.
        scale: u8,
        /// The number without its decimal point.
        value: i32,
    },
    /// Seconds since the epoch; below zero for a time before 1970.
    Timestamp(i64),
    /// A string in UTF-8.
    Text(&'a str),
    /// A byte array, or a string that is not UTF-8.
    Bytes(&'a [u8]),
    /// An array.
    List(Vec<HeaderValue<'a>>),
    /// A table.
    Table(Vec<(&'a str, HeaderValue<'a>)>),
}

impl<'a> HeaderValue<'a> {
    #[doc(hidden)]
    pub fn of(value: &'a AMQPValue) -> Self {
        match value {
            AMQPValue::Void => Self::Void,
            AMQPValue::Boolean(value) => Self::Bool(*value),
            AMQPValue::ShortShortInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::ShortShortUInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::ShortInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::ShortUInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::LongInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::LongUInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::LongLongInt(value) => Self::Int(*value),
            AMQPValue::Float(value) => Self::Float(f64::from(*value)),
            AMQPValue::Double(value) => Self::Float(*value),
            // AMQP says unsigned, and clients write signed numbers (pika, Java).
            AMQPValue::DecimalValue(decimal) => {
                Self::Decimal { scale: decimal.scale, value: decimal.value.cast_signed() }
            }
            AMQPValue::Timestamp(seconds) => Self::Timestamp(seconds.cast_signed()),
            AMQPValue::ShortString(text) => Self::Text(text.as_str()),
            AMQPValue::LongString(text) => Self::of_bytes(text.as_bytes()),
            AMQPValue::ByteArray(bytes) => Self::Bytes(bytes.as_slice()),
            AMQPValue::FieldArray(array) => {
                Self::List(array.as_slice().iter().map(Self::of).collect())
            }
            AMQPValue::FieldTable(table) => Self::Table(entries(table).collect()),
        }
    }

    /// The value as it is sent. A text becomes a long string.
    /// AMQP carries names of at most 255 bytes, so longer ones inside a table are cut.
    pub(crate) fn to_amqp(&self) -> AMQPValue {
        match self {
            Self::Void => AMQPValue::Void,
            Self::Bool(value) => AMQPValue::Boolean(*value),
            Self::Int(value) => AMQPValue::LongLongInt(*value),
            Self::Float(value) => AMQPValue::Double(*value),
            Self::Decimal { scale, value } => AMQPValue::DecimalValue(DecimalValue {
                scale: *scale,
                value: value.cast_unsigned(),
            }),
            Self::Timestamp(seconds) => AMQPValue::Timestamp(seconds.cast_unsigned()),
            Self::Text(text) => AMQPValue::LongString(LongString::from(text.as_bytes())),
            Self::Bytes(bytes) => AMQPValue::ByteArray(ByteArray::from(*bytes)),
            Self::List(values) => AMQPValue::FieldArray(FieldArray::from(
                values.iter().map(Self::to_amqp).collect::<Vec<_>>(),
            )),
            Self::Table(entries) => {
                let mut table = FieldTable::default();
                for (name, value) in entries {
                    table.insert(ShortString::from(cut(name, 255)), value.to_amqp());
                }
                AMQPValue::FieldTable(table)
            }
        }
    }

    fn of_bytes(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::Text)
    }

    /// The text of a string, whether it was sent as a string or as bytes.
    pub fn as_text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

impl<'a> From<&'a str> for HeaderValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for HeaderValue<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for HeaderValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<bool> for HeaderValue<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Every integer that an `i64` holds.
macro_rules! from_integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for HeaderValue<'_> {
            fn from(value: $integer) -> Self {
                Self::Int(value.into())
            }
        }
    )*};
}

from_integers!(i8 u8 i16 u16 i32 u32 i64);

impl From<f32> for HeaderValue<'_> {
    fn from(value: f32) -> Self {
        Self::Float(value.into())
    }
}

impl From<f64> for HeaderValue<'_> {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

pub(super) fn entries(table: &FieldTable) -> impl Iterator<Item = (&str, HeaderValue<'_>)> {
    table.inner().iter().map(|(name, value)| (name.as_str(), HeaderValue::of(value)))
}
