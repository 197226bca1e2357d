//! Types of fields that rows fill (see [`row`](crate::row)).

use std::fmt::{self, Display};
use std::ops::Deref;
use std::path::PathBuf;
use std::str::FromStr;

use crate::exit::Failure;
use crate::table::Setting;
use crate::value::{Kind, Layer, Space, Value, cores};

/// A type that a row can fill.
pub trait Field: Sized {
    /// The field of a row that has these values, from this layer.
    fn read(setting: &'static Setting, values: &[Value], layer: &Layer) -> Self;
}

/// A type that one value of a row can fill.
pub trait Single: Sized {
    /// `None` for a value of another kind, which rows of this type do not have.
    fn of(setting: &'static Setting, value: &Value) -> Option<Self>;
}

/// Unsigned integers that rows of numbers fill.
pub trait Number: Single {
    /// The most that a row of this type may allow.
    const MAX: u64;
}

/// A type that rows of words fill.
pub trait Word: Single {}

impl<T: Single> Field for T {
    fn read(setting: &'static Setting, values: &[Value], _: &Layer) -> T {
        let value = values.first().and_then(|value| T::of(setting, value));
        value.expect("a row that is no Option has a default or is required")
    }
}

impl<T: Single> Field for Option<T> {
    fn read(setting: &'static Setting, values: &[Value], _: &Layer) -> Option<T> {
        let stands_for_none =
            |value: &&Value| matches!(value, Value::Word(word) if word == setting.default);
        T::of(setting, values.first().filter(|value| !stands_for_none(value))?)
    }
}

impl<T: Single> Field for Vec<T> {
    fn read(setting: &'static Setting, values: &[Value], _: &Layer) -> Vec<T> {
        values.iter().filter_map(|value| T::of(setting, value)).collect()
    }
}

macro_rules! numbers {
    ($($type:ty, $max:expr;)*) => {$(
        impl Single for $type {
            fn of(setting: &'static Setting, value: &Value) -> Option<$type> {
                match (setting.kind, value) {
                    (Kind::Cores, Value::Number(number)) => cores(*number).try_into().ok(),
                    (_, Value::Number(number)) => Some((*number).try_into().unwrap_or(<$type>::MAX)),
                    _ => None,
                }
            }
        }

        impl Number for $type {
            const MAX: u64 = $max;
        }
    )*};
}

// A length that is more than a small machine can address is as good as its most.
numbers! {
    u8, u8::MAX as u64;
    u16, u16::MAX as u64;
    u32, u32::MAX as u64;
    u64, u64::MAX;
    usize, u64::MAX;
}

impl Single for bool {
    fn of(_: &'static Setting, value: &Value) -> Option<bool> {
        match value {
            Value::Switch(is_on) => Some(*is_on),
            _ => None,
        }
    }
}

impl Single for &'static str {
    fn of(_: &'static Setting, value: &Value) -> Option<&'static str> {
        match value {
            Value::Choice(word) => Some(word),
            _ => None,
        }
    }
}

impl Single for PathBuf {
    fn of(_: &'static Setting, value: &Value) -> Option<PathBuf> {
        match value {
            Value::Path(path) => Some(path.clone()),
            Value::Word(word) => Some(word.into()),
            _ => None,
        }
    }
}

impl Single for Text {
    fn of(setting: &'static Setting, value: &Value) -> Option<Text> {
        match value {
            Value::Word(text) => Some(Text { setting, text: text.clone() }),
            _ => None,
        }
    }
}

impl Single for Space {
    fn of(_: &'static Setting, value: &Value) -> Option<Space> {
        match value {
            Value::Space(space) => Some(*space),
            _ => None,
        }
    }
}

impl Single for i64 {
    fn of(_: &'static Setting, value: &Value) -> Option<i64> {
        match value {
            Value::Time(ns, _) => Some(*ns),
            _ => None,
        }
    }
}

impl Word for PathBuf {}
impl Word for Text {}

/// A value, and whether a flag, the environment or the file has set it.
#[derive(Clone, Debug)]
pub struct Sourced<T> {
    setting: &'static Setting,
    value: T,
    is_given: bool,
}

impl<T> Sourced<T> {
    /// The name of the setting if its value is not the default.
    pub fn given(&self) -> Option<&'static str> {
        self.is_given.then_some(self.setting.name)
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Field> Field for Sourced<T> {
    fn read(setting: &'static Setting, values: &[Value], layer: &Layer) -> Sourced<T> {
        let is_given = *layer != Layer::Default;
        Sourced { setting, value: T::read(setting, values, layer), is_given }
    }
}

/// A word, with the setting that has it.
#[derive(Clone)]
pub struct Text {
    setting: &'static Setting,
    text: String,
}

impl Text {
    /// The word as a value of another type. An error names the setting.
    pub fn item<T: FromStr<Err: Display>>(&self) -> Result<T, Failure> {
        self.parse_part(&self.text)
    }

    /// The items of a list with commas; at least one.
    pub fn items<T: FromStr<Err: Display>>(&self) -> Result<Vec<T>, Failure> {
        self.items_by(|word| self.parse_part(word))
    }

    /// The same; `read` converts a word.
    pub fn items_by<T>(
        &self,
        read: impl Fn(&str) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let words = self.text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let items: Vec<T> = words.map(read).collect::<Result<_, Failure>>()?;
        if items.is_empty() {
            let example = self.setting.default;
            return Err(self.wrong(format!("the list is empty; for example {example}")));
        }
        Ok(items)
    }

    fn parse_part<T: FromStr<Err: Display>>(&self, word: &str) -> Result<T, Failure> {
        word.parse().map_err(|error| self.wrong(error))
    }

    fn wrong(&self, what: impl Display) -> Failure {
        Failure::usage(format!("--{}: {what}", self.setting.name))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Words of a list, in the order written.
#[derive(Clone, Debug)]
pub struct List {
    setting: &'static Setting,
    words: Vec<String>,
}

impl List {
    /// The name of the setting, for errors.
    pub fn name(&self) -> &'static str {
        self.setting.name
    }
}

impl Deref for List {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.words
    }
}

impl Field for List {
    fn read(setting: &'static Setting, values: &[Value], _: &Layer) -> List {
        let words = values.iter().flat_map(|value| match value {
            Value::Word(text) => text.split(','),
            _ => "".split(','),
        });
        let words = words.map(str::trim).filter(|word| !word.is_empty() && *word != "none");
        List { setting, words: words.map(str::to_owned).collect() }
    }
}
