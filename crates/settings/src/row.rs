//! Typed rows: a row of the table declares the field that it fills.
//!
//! [`settings!`](crate::settings) makes a struct of rows. The name of a field is the name of its
//! setting (with `-` for `_`), and the type of a field must be that of its row. So code that
//! misspells a setting, or reads it as another kind, does not compile.
//!
//! ```
//! use larder_settings::row::List;
//! use larder_settings::settings;
//! use larder_settings::table::Setting;
//!
//! const LIMIT: Setting = Setting::lasting("Limits");
//!
//! settings! {
//!     pub struct Server {
//!         pub listen: List = LIMIT.list().many().default("127.0.0.1:53").help("Listen here"),
//!         pub udp_size: u16 = LIMIT.count(512, 4_096).default("1232").help("Limit UDP responses"),
//!         pub log: Option<std::path::PathBuf> = LIMIT.word().none("none").help("Write a log"),
//!     }
//! }
//! ```
//!
//! | row | field |
//! |---|---|
//! | `switch()` | `bool` |
//! | `count(min, max)`, `bytes(..)`, `seconds(..)`, `seed()` | an unsigned integer that holds the maximum |
//! | `cores()` | `usize`: the number of threads, also for `all` |
//! | `choice(words)` | `&'static str`, one of the words |
//! | `path()`, `endpoint()` | `PathBuf`; the pipe of an endpoint is `-` |
//! | `word()`, `set(..)` | [`Text`], or `PathBuf` |
//! | `list()` | [`List`] |
//! | `space()`, `time(..)` | [`Space`], `i64` in ns since 1970 |
//!
//! A row is an `Option` until it gets a `default` or is `required`. With `none(word)` it stays one,
//! and `word` stands for `None`. A row of paths or words that is `many` fills a `Vec`.

use std::marker::PhantomData;
use std::path::PathBuf;

pub use crate::field::{Field, List, Number, Single, Sourced, Text, Word};
use crate::table::{Reach, Setting};
use crate::value::{Kind, Layer, Space, Value};

/// A row whose values have the type `T`.
#[derive(Clone, Copy, Debug)]
pub struct Row<T> {
    setting: Setting,
    value: PhantomData<fn() -> T>,
}

/// Kinds of rows. Each begins with a [`Setting`] that has the common parts of several rows.
impl Setting {
    /// The common parts of settings for one run, under this heading in help.
    pub const fn run(group: &'static str) -> Setting {
        Setting { group, ..crate::table::ROW }
    }

    /// The common parts of settings that a file and the environment may set.
    pub const fn lasting(group: &'static str) -> Setting {
        Setting { reach: Reach::Lasting, ..Setting::run(group) }
    }

    /// The same settings as ones that a reload changes while a server runs.
    pub const fn live(self) -> Setting {
        Setting { is_live: true, ..self }
    }

    const fn row<T>(self, kind: Kind, value_name: &'static str) -> Row<T> {
        Row { setting: Setting { kind, value_name, ..self }, value: PhantomData }
    }

    /// Off unless it is set.
    pub const fn switch(self) -> Row<bool> {
        self.row::<bool>(Kind::Switch, "").with_default("false")
    }

    /// A size in bytes.
    pub const fn bytes<N: Number>(self, min: u64, max: u64) -> Row<Option<N>> {
        assert!(max <= N::MAX);
        self.row(Kind::Bytes { min, max }, "BYTES")
    }

    /// A plain number.
    pub const fn count<N: Number>(self, min: u64, max: u64) -> Row<Option<N>> {
        assert!(max <= N::MAX);
        self.row(Kind::Count { min, max }, "N")
    }

    /// A time in whole seconds.
    pub const fn seconds<N: Number>(self, min: u64, max: u64) -> Row<Option<N>> {
        assert!(max <= N::MAX);
        self.row(Kind::Seconds { min, max }, "SECONDS")
    }

    /// A number of threads.
    pub const fn cores(self) -> Row<Option<usize>> {
        self.row(Kind::Cores, "N")
    }

    /// Any 64-bit number.
    pub const fn seed(self) -> Row<Option<u64>> {
        self.row(Kind::Seed, "N")
    }

    /// One of a few words.
    pub const fn choice(self, words: &'static [&'static str]) -> Row<Option<&'static str>> {
        self.row(Kind::Choice(words), "FORMAT")
    }

    /// `all`, or some of a few words, each of which is called `item`.
    pub const fn set(
        self,
        words: &'static [&'static str],
        item: &'static str,
    ) -> Row<Option<Text>> {
        self.row(Kind::Set { words, item }, "LIST")
    }

    /// A path.
    pub const fn path(self) -> Row<Option<PathBuf>> {
        self.row(Kind::Path, "FILE")
    }

    /// A path, or `-` for a pipe.
    pub const fn endpoint(self) -> Row<Option<PathBuf>> {
        self.row(Kind::Endpoint, "FILE")
    }

    /// Any word: a text, or the path of a file for which a word may stand.
    pub const fn word<W: Word>(self) -> Row<Option<W>> {
        self.row(Kind::Word, "VALUE")
    }

    /// Words with commas between; empty without a value, and for `none`.
    pub const fn list(self) -> Row<List> {
        self.row(Kind::List, "LIST")
    }

    /// Space of a disk.
    pub const fn space(self) -> Row<Option<Space>> {
        self.row(Kind::Space, "BYTES|PERCENT")
    }

    /// A point in time; `read` reads its absolute forms, as ns since 1970.
    pub const fn time(self, read: fn(&[u8]) -> Option<i64>) -> Row<Option<i64>> {
        self.row(Kind::Time(read), "TIME")
    }
}

impl<T> Row<T> {
    const fn of(setting: Setting) -> Row<T> {
        Row { setting, value: PhantomData }
    }

    const fn with_default<U>(self, default: &'static str) -> Row<U> {
        Row::of(Setting { default, ..self.setting })
    }

    /// The name of the value in help.
    pub const fn value(self, value_name: &'static str) -> Row<T> {
        Row::of(Setting { value_name, ..self.setting })
    }

    /// The short flag.
    pub const fn letter(self, letter: char) -> Row<T> {
        Row::of(Setting { letter: Some(letter), ..self.setting })
    }

    /// A bare argument instead of a flag.
    pub const fn positional(self) -> Row<T> {
        Row::of(Setting { positional: true, ..self.setting })
    }

    /// The effect: an imperative of at most 60 characters, for `-h`.
    pub const fn help(self, help: &'static str) -> Row<T> {
        Row::of(Setting { help, ..self.setting })
    }

    /// The rest of the meaning, in sentences, for `--help`.
    pub const fn more(self, more: &'static str) -> Row<T> {
        Row::of(Setting { more, ..self.setting })
    }

    /// The reason for the default, or when to change it, in sentences.
    pub const fn why(self, why: &'static str) -> Row<T> {
        Row::of(Setting { why, ..self.setting })
    }

    /// Without any of these settings of the command, this one has no effect and is refused (the module
    /// `needs` has the rules). Help states them.
    pub const fn needs(self, names: &'static [&'static str]) -> Row<T> {
        Row::of(Setting { needs: names, ..self.setting })
    }

    /// The heading in help, for a row that several commands share.
    pub const fn group(self, group: &'static str) -> Row<T> {
        Row::of(Setting { group, ..self.setting })
    }

    /// A setting of one run, among settings that last.
    pub const fn of_one_run(self) -> Row<T> {
        Row::of(Setting { reach: Reach::Run, ..self.setting })
    }

    /// A reload changes it while the server runs.
    pub const fn live(self) -> Row<T> {
        Row::of(Setting { is_live: true, ..self.setting })
    }

    /// Only a restart changes it, among settings that a reload changes.
    pub const fn needs_restart(self) -> Row<T> {
        Row::of(Setting { is_live: false, ..self.setting })
    }

    /// The row with the name of its field; for the macro.
    #[doc(hidden)]
    pub const fn named(self, name: &'static str) -> Setting {
        Setting { name, ..self.setting }
    }

    /// The field also has whether the value is the default.
    pub const fn with_source(self) -> Row<Sourced<T>> {
        Row::of(self.setting)
    }
}

impl<T> Row<Option<T>> {
    /// The value without one of another layer.
    pub const fn default(self, default: &'static str) -> Row<T> {
        self.with_default(default)
    }

    /// A command without it is a usage error.
    pub const fn required(self) -> Row<T> {
        Row::of(Setting { required: true, ..self.setting })
    }

    /// `word` is the default and stands for no value.
    pub const fn none(self, word: &'static str) -> Row<Option<T>> {
        self.with_default(word)
    }

    /// It may be given several times, with several values each.
    pub const fn many(self) -> Row<Vec<T>> {
        Row::of(Setting { many: true, ..self.setting })
    }

    /// It may be given several times, with one value each.
    pub const fn repeated(self) -> Row<Vec<T>> {
        Row::of(Setting { many: true, one_each: true, ..self.setting })
    }
}

impl<T> Row<Vec<T>> {
    /// A command without it is a usage error.
    pub const fn required(self) -> Row<Vec<T>> {
        Row::of(Setting { required: true, ..self.setting })
    }
}

impl Row<List> {
    /// The value without one of another layer.
    pub const fn default(self, default: &'static str) -> Row<List> {
        self.with_default(default)
    }

    /// It may be given several times, with several values each.
    pub const fn many(self) -> Row<List> {
        Row::of(Setting { many: true, ..self.setting })
    }
}

impl Row<bool> {
    /// On unless it is set to `false`.
    pub const fn on(self) -> Row<bool> {
        self.with_default("true")
    }
}

impl Row<&'static str> {
    /// The word that the bare flag stands for.
    pub const fn bare(self, bare: &'static str) -> Row<&'static str> {
        Row::of(Setting { bare, ..self.setting })
    }
}

/// Rows and the values that they fill: of a command, or a part of it. [`settings!`](crate::settings)
/// implements it.
pub trait Settings: Sized {
    /// The rows in the order of help.
    const ROWS: &'static [Setting];

    /// Takes one value for each row.
    fn fill(values: &mut Values<'_>) -> Self;
}

/// Values of a command, row by row.
pub struct Values<'a> {
    rows: std::slice::Iter<'static, Setting>,
    values: std::slice::Iter<'a, (Vec<Value>, Layer)>,
}

impl<'a> Values<'a> {
    /// Of these rows.
    pub(crate) fn new(rows: &'static [Setting], values: &'a [(Vec<Value>, Layer)]) -> Values<'a> {
        Values { rows: rows.iter(), values: values.iter() }
    }

    /// The value of the next row; for the macro.
    #[doc(hidden)]
    pub fn take<T: Field>(&mut self) -> T {
        let (setting, (values, layer)) =
            self.rows.by_ref().zip(&mut self.values).next().expect("as many values as rows");
        T::read(setting, values, layer)
    }
}

/// The name of a setting in bytes: that of its field with `-` for `_`. For the macro.
#[doc(hidden)]
pub const fn dashed<const N: usize>(field: &str) -> [u8; N] {
    let mut name = [0; N];
    let mut at = 0;
    while at < N {
        let byte = field.as_bytes()[at];
        name[at] = if byte == b'_' { b'-' } else { byte };
        at += 1;
    }
    name
}

/// Makes a struct of typed rows, or of structs of rows (see [`row`](crate::row)).
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$of_field:meta])* $of:vis $field:ident: $type:ty = $row:expr,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$of_field])* $of $field: $type,)*
        }

        impl $crate::row::Settings for $name {
            const ROWS: &'static [$crate::table::Setting] = &[$({
                const ROW: $crate::row::Row<$type> = $row;
                const FIELD: &str = stringify!($field);
                const NAME: [u8; FIELD.len()] = $crate::row::dashed(FIELD);
                match std::str::from_utf8(&NAME) {
                    Ok(name) => ROW.named(name),
                    Err(_) => panic!("the name of a field is UTF-8"),
                }
            },)*];

            fn fill(values: &mut $crate::row::Values<'_>) -> $name {
                $name { $($field: values.take(),)* }
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($of:vis $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $name {
            $($of $field: $type,)*
        }

        impl $crate::row::Settings for $name {
            const ROWS: &'static [$crate::table::Setting] = {
                const PARTS: &[&[$crate::table::Setting]] =
                    &[$(<$type as $crate::row::Settings>::ROWS,)*];
                const ROWS: usize = $crate::table::count(PARTS);
                &$crate::table::joined::<ROWS>(PARTS)
            };

            fn fill(values: &mut $crate::row::Values<'_>) -> $name {
                $name { $($field: $crate::row::Settings::fill(values),)* }
            }
        }
    };
}
