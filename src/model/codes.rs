//! Tables of stable codes. One table makes the enum, its text form, and what
//! `--explain` and `docs/warnings.md` say: a code that is not explained cannot
//! exist (`behaviour.md`, Warnings).

/// The text is no code of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such code")]
pub struct UnknownCode;

macro_rules! code_table {
    (
        $(#[doc = $about:literal])+
        pub enum $name:ident weighs $weight:ident;
        $( $(#[doc = $doc:literal])+ $variant:ident = $code:literal, $severity:ident, $explain:literal; )+
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl $name {
            /// Every code, in the order of `docs/warnings.md`. Reports give those of one
            /// severity in this order too, so the table goes from what may be missing
            /// to what is only odd.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            /// The code as it is printed.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $code, )+ }
            }

            /// How much it weighs.
            pub fn severity(self) -> $weight {
                match self { $( Self::$variant => $weight::$severity, )+ }
            }

            /// What it is about, in one sentence.
            pub fn summary(self) -> &'static str {
                match self { $( Self::$variant => concat!($( $doc ),+).trim_ascii(), )+ }
            }

            /// What it means and what to do, for `--explain`.
            pub fn explanation(self) -> &'static str {
                match self { $( Self::$variant => $explain, )+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::model::codes::UnknownCode;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut all = Self::ALL.iter().copied();
                all.find(|code| code.as_str() == text)
                    .ok_or($crate::model::codes::UnknownCode)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let codes: Vec<_> = Self::ALL.iter().map(|code| code.as_str()).collect();
                schemars::json_schema!({ "type": "string", "enum": codes })
            }
        }
    };
}

pub(crate) use code_table;
