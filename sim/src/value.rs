//! Values of simulated tasks: few kinds, easy to compare, and made from a number, so that equal inputs give equal outputs.

use bytes::Bytes;
use onceflow_core::{model::Type, payload::Payload};
use onceflow_engine::task::Data;

/// What travels between simulated tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// No value.
    None,
    /// Nothing but that it is done.
    Unit,
    /// Yes or no.
    Bool(bool),
    /// A number.
    Int(u64),
    /// So many bytes, made from a number.
    Bytes(u32, u64),
    /// Elements.
    List(Vec<Value>),
    /// What went wrong; which of several things did is up to chance.
    Text,
}

const INT: u8 = 0xcf;

/// Mixes two numbers.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut bits = (a ^ b.rotate_left(29)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A number for a name.
pub fn number_of(name: &str) -> u64 {
    name.bytes().fold(7, |number, byte| mix(number, u64::from(byte)))
}

impl Value {
    /// A number for it.
    pub fn number(&self) -> u64 {
        match self {
            Value::None => 1,
            Value::Unit => 2,
            Value::Bool(yes) => 3 + u64::from(*yes),
            Value::Int(number) => mix(5, *number),
            Value::Bytes(len, number) => mix(mix(6, u64::from(*len)), *number),
            Value::List(elements) => elements.iter().fold(mix(7, elements.len() as u64), |a, b| mix(a, b.number())),
            Value::Text => 8,
        }
    }

    /// A value of this type, made from a number.
    pub fn made(ty: &Type, number: u64) -> Value {
        match ty {
            Type::Unit => Value::Unit,
            Type::Bool => Value::Bool(number % 2 == 1),
            Type::Bytes => {
                match number % 16 {
                    // Few different ones, so that equal content meets.
                    0..4 => Value::Bytes(70_000, number / 16 % 2),
                    4..8 => Value::Bytes(1_500, number),
                    _ => Value::Bytes(12, number),
                }
            }
            Type::Option(_) if number.is_multiple_of(4) => Value::None,
            Type::Option(inner) => Value::made(inner, mix(number, 1)),
            Type::List(inner) => {
                Value::List((0..number % 4).map(|at| Value::made(inner, mix(number, at + 2))).collect())
            }
            _ => Value::Int(number),
        }
    }

    /// As tasks give it.
    pub fn data(&self) -> Data {
        match self {
            Value::None => Data::None,
            Value::List(elements) => Data::List(elements.iter().map(Value::data).collect()),
            other => Data::Bytes(Bytes::from(other.bytes())),
        }
    }

    /// As flows hold constants.
    pub fn payload(&self) -> Payload {
        match self {
            Value::None => Payload::unit(),
            Value::List(elements) => Payload::List(elements.iter().map(|element| Some(element.payload())).collect()),
            other => Payload::inline(other.bytes()),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Value::None | Value::Unit => b"null".to_vec(),
            Value::Bool(yes) => vec![if *yes { 0xc3 } else { 0xc2 }],
            Value::Int(number) => [&[INT][..], &number.to_be_bytes()].concat(),
            Value::Bytes(len, number) => {
                let mut bytes = vec![*number as u8; *len as usize];
                bytes[..4].copy_from_slice(&len.to_be_bytes());
                bytes[4..12].copy_from_slice(&number.to_be_bytes());
                bytes
            }
            Value::List(_) => unreachable!("a list has no bytes"),
            Value::Text => vec![0xdb],
        }
    }

    /// What a task was given.
    pub fn of_data(data: &Data) -> Result<Value, String> {
        match data {
            Data::None => Ok(Value::None),
            Data::List(elements) => {
                Ok(Value::List(elements.iter().map(|element| Value::of_data(&element)).collect::<Result<_, _>>()?))
            }
            Data::Bytes(bytes) => Value::of_bytes(bytes),
            Data::File(_) => Err(String::from("a file")),
        }
    }

    /// What a constant is.
    pub fn of_payload(payload: &Payload) -> Value {
        match payload {
            Payload::Inline(bytes) => Value::of_bytes(bytes).expect("constants are well made"),
            Payload::List(elements) => {
                let element = |element: &Option<Payload>| element.as_ref().map_or(Value::None, Value::of_payload);
                Value::List(elements.iter().map(element).collect())
            }
            other => unreachable!("constants are small, and {other:?} is not"),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Result<Value, String> {
        match bytes {
            b"null" => Ok(Value::Unit),
            [0xc2] => Ok(Value::Bool(false)),
            [0xc3] => Ok(Value::Bool(true)),
            [0xdb, ..] => Ok(Value::Text),
            [INT, rest @ ..] if rest.len() == 8 => {
                Ok(Value::Int(u64::from_be_bytes(rest.try_into().expect("eight bytes"))))
            }
            _ if bytes.len() >= 12 => {
                let len = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
                let number = u64::from_be_bytes(bytes[4..12].try_into().expect("eight bytes"));
                let whole = Value::Bytes(len, number);
                if len as usize == bytes.len() && whole.bytes() == bytes {
                    Ok(whole)
                } else {
                    Err(format!("{} bytes that no task gave", bytes.len()))
                }
            }
            _ => Err(format!("{} bytes that no task gave", bytes.len())),
        }
    }
}

/// What a task gives for its inputs.
pub fn given(name: &str, version: &str, salt: u64, inputs: &[Value], outputs: &[Type]) -> Vec<Value> {
    let number = task_number(name, version, inputs);
    outputs.iter().zip(0..).map(|(ty, at)| Value::made(ty, mix(mix(number, salt), at))).collect()
}

/// A number for a task and what it is given.
pub fn task_number(name: &str, version: &str, inputs: &[Value]) -> u64 {
    inputs.iter().fold(mix(number_of(name), number_of(version)), |number, input| mix(number, input.number()))
}
