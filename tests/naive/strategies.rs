//! Files as they lie in a workspace, of every generation and with every kind of damage, as proptest strategies.
//!
//! JSON is made as text, never through a JSON library: what matters here are exactly the forms that a library would
//! not write (a key twice, `-0`, `1e400`, half a surrogate pair, a key spelled with escapes). Most files are mostly
//! valid, so that a comparison of two readers reaches past the first line.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Keys and the JSON text of their values, in the order in which they are written.
type Fields = Vec<(String, String)>;

// ---------------------------------------------------------------------------------------------------------------
// JSON text

/// The text of a string, quoted. Always valid.
pub fn quoted() -> BoxedStrategy<String> {
    let piece = prop_oneof![
        12 => select(vec![
            "hello", "Where to?", "list the ports", "22, 80", "a", " ", "   ", "ok.", "done 98% ", "role", "_meta",
        ]),
        // Escapes that mean something, some of them in the long form of what needs none.
        4 => select(vec![
            r"\n", r"\r\n", r"\t", r#"\""#, r"\\", r"\/", r"\b\f", r"\u0000", r"\u0041", r"\u2028", r"\ud83d\ude80",
            r"\u000b", r"\u001f", r"\u00e9", r"\uFFFF",
        ]),
        // Raw characters that other readers split lines at, fold, or lose.
        4 => select(vec![
            "\u{2028}", "\u{2029}", "\u{85}", "\u{a0}", "\u{3000}", "\u{feff}", "e\u{301}", "\u{e9}", "👩\u{200d}👩",
            "\u{202e}abc", "\u{7f}", "\u{fffd}", "🚀", "日本",
        ]),
        // What the application itself writes into content.
        2 => select(vec![
            r#"{\"content\":\"on it\",\"tool_calls\":[{\"id\":\"c1\",\"name\":\"shell\",\"arguments\":\"{}\"}]}"#,
            r#"{\"tool_call_id\":\"c1\",\"content\":\"22, 80\"}"#,
            r"<tool_call>{}</tool_call>", "shell[ls|-l]", "[OH_IMAGE:data:image/png;base64,AAAA]",
            r"line\n---\n\n## [user]\n", "<!--/MSG-->", r#"{\"_tinyagents_media_parts\":[]}"#,
        ]),
    ];
    vec(piece, 0..4)
        .prop_map(|pieces| format!("\"{}\"", pieces.concat()))
        .boxed()
}

/// A number that the strict parser takes: integers around each limit, and doubles that are easily rounded wrong.
fn number() -> BoxedStrategy<String> {
    prop_oneof![
        6 => (0u32..100_000).prop_map(|n| n.to_string()),
        4 => select(vec![
            "0", "1", "-1", "-0", "1.0", "0.0", "-0.0", "1e0", "1E+2", "10e-1", "0.1", "0.30000000000000004", "1e-400",
            "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "4294967295",
            "4294967296", "9223372036854775808", "18446744073709551615", "18446744073709551616",
            "-9223372036854775808", "-9223372036854775809", "123456789012345678901234567890",
            "3.141592653589793238462643383279", "0.00210000000000000000000000000000001", "1.00000000000000011102230246251565",
        ]).prop_map(str::to_owned),
        1 => any::<f64>().prop_filter_map("finite", |n| n.is_finite().then(|| format!("{n:e}"))),
        1 => any::<u64>().prop_map(|n| n.to_string()),
    ]
    .boxed()
}

/// An integer that fits a `u64` field.
fn count() -> BoxedStrategy<String> {
    prop_oneof![
        9 => (0u32..200_000).prop_map(|n| n.to_string()),
        1 => select(vec!["0", "18446744073709551615", "9007199254740993"]).prop_map(str::to_owned),
    ]
    .boxed()
}

/// An integer that fits a `u32` field.
fn small_count() -> BoxedStrategy<String> {
    prop_oneof![9 => (0u32..9).prop_map(|n| n.to_string()), 1 => Just("4294967295".to_owned())]
        .boxed()
}

/// A number that fits a double field.
fn amount() -> BoxedStrategy<String> {
    prop_oneof![4 => select(vec!["0.0021", "0.0", "0.000100", "0", "1"]).prop_map(str::to_owned), 1 => number()].boxed()
}

/// Any value that the strict parser takes, a few levels deep. A key may come twice: in a `Value` the last one counts.
pub fn json_value() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        1 => select(vec!["null", "true", "false", "[]", "{}", r#""""#]).prop_map(str::to_owned),
        2 => number(),
        2 => quoted(),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        let key = select(vec![
            "a",
            "b",
            "value",
            "openhuman_turn_usage",
            "json",
            "id",
            r"\u0061",
            "é",
        ]);
        let member = (key, inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
        prop_oneof![
            vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
    .boxed()
}

/// A value that the strict parser refuses and that a skipping one takes all the same.
pub fn skippable_value() -> BoxedStrategy<String> {
    let bad = select(vec![
        r#""done \ud83d cut""#,
        r#""\ude80\ud83d""#,
        r#""\uD800""#,
        "1e400",
        "-1e400",
        "[1e999]",
        r#"{"a":[1e400]}"#,
        r#"{"a":"\ud83d"}"#,
    ]);
    prop_oneof![4 => bad.prop_map(str::to_owned), 1 => nested(128..400)].boxed()
}

/// A value that is no JSON at all.
fn broken_value() -> BoxedStrategy<String> {
    select(vec![
        "01",
        "1.",
        ".5",
        "+1",
        "NaN",
        "Infinity",
        "0x1",
        "nul",
        "'a'",
        "\"\\x\"",
        "\"tab\there\"",
        "\"nul\0here\"",
        "\"open",
        "[1,]",
        "{\"a\"}",
        "{\"a\":1,}",
        "[",
        "]",
        "",
        "\"\\u12\"",
        "1 2",
    ])
    .prop_map(str::to_owned)
    .boxed()
}

/// Arrays and objects one inside the other, so many deep.
fn nested(depths: std::ops::Range<usize>) -> BoxedStrategy<String> {
    let leaf =
        prop_oneof![3 => select(vec!["", "1", "null"]).prop_map(str::to_owned), 1 => quoted()];
    (depths, any::<bool>(), leaf)
        .prop_map(|(depth, objects, leaf)| {
            let (open, close) = if objects {
                (r#"{"k":"#, "}")
            } else {
                ("[", "]")
            };
            let core = match (leaf.as_str(), objects) {
                ("", true) => "{}".to_owned(),
                ("", false) => "[]".to_owned(),
                (leaf, _) => format!("[{leaf}]"),
            };
            format!(
                "{}{core}{}",
                open.repeat(depth - 1),
                close.repeat(depth - 1)
            )
        })
        .boxed()
}

/// Around the limit of 127, seen from wherever it counts: the line itself (126 below a top-level key), a record's
/// `extra_metadata` (125), `unmapped` (123), `extra_content` of a call in a line (124) and in a record (121).
fn deep_value() -> BoxedStrategy<String> {
    nested(119..129)
}

/// How the members of an object are set out. JSON's own white space only, and no newline.
#[derive(Debug, Clone, Copy)]
enum Style {
    Compact,
    Spaced,
    Wild,
}

fn style() -> BoxedStrategy<Style> {
    prop_oneof![6 => Just(Style::Compact), 3 => Just(Style::Spaced), 1 => Just(Style::Wild)].boxed()
}

fn object(fields: &Fields, style: Style) -> String {
    let (colon, comma, open, close) = match style {
        Style::Compact => (":", ",", "{", "}"),
        Style::Spaced => (": ", ", ", "{", "}"),
        Style::Wild => (" :\t", " ,  ", "{ \t", "\r }"),
    };
    let members: Vec<String> = fields
        .iter()
        .map(|(key, value)| format!("\"{key}\"{colon}{value}"))
        .collect();
    format!("{open}{}{close}", members.join(comma))
}

/// One thing done to a valid record. About half of them leave it valid.
#[derive(Debug, Clone)]
enum Mutation {
    None,
    Rotate(Index),
    Reverse,
    Null(Index),
    Replace(Index, String),
    Drop(Index),
    /// The same key again, with the same value or another.
    Repeat(Index, Option<String>),
    /// A key that no struct names, once or twice.
    Add(Index, String, String),
    AddTwice(String, String, String),
    /// The first letter of a key as an escape: the same key to a parser.
    Respell(Index),
}

impl Mutation {
    fn apply(self, mut fields: Fields) -> Fields {
        let len = fields.len();
        if len == 0 {
            return fields;
        }
        match self {
            Self::None => {}
            Self::Rotate(at) => fields.rotate_left(at.index(len)),
            Self::Reverse => fields.reverse(),
            Self::Null(at) => fields[at.index(len)].1 = "null".to_owned(),
            Self::Replace(at, value) => fields[at.index(len)].1 = value,
            Self::Drop(at) => drop(fields.remove(at.index(len))),
            Self::Repeat(at, value) => {
                let (key, old) = fields[at.index(len)].clone();
                fields.push((key, value.unwrap_or(old)));
            }
            Self::Add(at, key, value) => fields.insert(at.index(len), (key, value)),
            Self::AddTwice(key, first, second) => {
                fields.insert(0, (key.clone(), first));
                fields.push((key, second));
            }
            Self::Respell(at) => {
                let key = &mut fields[at.index(len)].0;
                if let Some(first) = key
                    .chars()
                    .next()
                    .filter(|first| first.is_ascii_alphanumeric() || *first == '_')
                {
                    *key = format!("\\u{:04x}{}", first as u32, &key[1..]);
                }
            }
        }
        fields
    }
}

/// Keys that no reader names. Not `openhuman_turn_usage`: `unmapped` has one place of that name.
fn unknown_key() -> BoxedStrategy<String> {
    select(vec![
        "future_field",
        "x",
        "cache_boundary",
        "name",
        "Role",
        "_extra",
        "session_import",
        "kind",
        "offset",
        "json",
        "é",
        "_metadata",
        "",
    ])
    .prop_map(str::to_owned)
    .boxed()
}

fn harmless() -> BoxedStrategy<Mutation> {
    prop_oneof![
        10 => Just(Mutation::None),
        2 => any::<Index>().prop_map(Mutation::Rotate),
        1 => Just(Mutation::Reverse),
        2 => (any::<Index>(), unknown_key(), json_value()).prop_map(|(at, k, v)| Mutation::Add(at, k, v)),
        1 => (unknown_key(), json_value(), json_value()).prop_map(|(k, a, b)| Mutation::AddTwice(k, a, b)),
        1 => any::<Index>().prop_map(Mutation::Respell),
    ]
    .boxed()
}

fn harmful() -> BoxedStrategy<Mutation> {
    prop_oneof![
        4 => any::<Index>().prop_map(Mutation::Null),
        4 => (any::<Index>(), json_value()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        3 => (any::<Index>(), number()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        2 => (any::<Index>(), deep_value()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        1 => (any::<Index>(), skippable_value()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        1 => (any::<Index>(), broken_value()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        3 => any::<Index>().prop_map(Mutation::Drop),
        2 => (any::<Index>(), option::of(json_value())).prop_map(|(at, value)| Mutation::Repeat(at, value)),
        2 => (any::<Index>(), unknown_key(), skippable_value()).prop_map(|(at, k, v)| Mutation::Add(at, k, v)),
        2 => (any::<Index>(), unknown_key(), deep_value()).prop_map(|(at, k, v)| Mutation::Add(at, k, v)),
    ]
    .boxed()
}

fn mutated(fields: BoxedStrategy<Fields>) -> BoxedStrategy<Fields> {
    let harm = prop_oneof![15 => Just(Mutation::None), 1 => harmful()];
    (fields, harm, harmless(), harmless())
        .prop_map(|(fields, a, b, c)| c.apply(b.apply(a.apply(fields))))
        .boxed()
}

fn field(key: &str, value: impl Strategy<Value = String> + 'static) -> BoxedStrategy<Fields> {
    let key = key.to_owned();
    value
        .prop_map(move |value| vec![(key.clone(), value)])
        .boxed()
}

/// The field, so often in a hundred; now and then as null, which is the same to the reader where null is allowed.
fn maybe(
    percent: u32,
    key: &str,
    value: impl Strategy<Value = String> + 'static,
) -> BoxedStrategy<Fields> {
    let null = field(key, Just("null".to_owned()));
    let absent = 100 - percent;
    prop_oneof![
        absent.max(1) => Just(Vec::new()),
        percent.max(1) => prop_oneof![14 => field(key, value), 1 => null],
    ]
    .boxed()
}

/// The same for a field that may be left out, but not null.
fn maybe_not_null(
    percent: u32,
    key: &str,
    value: impl Strategy<Value = String> + 'static,
) -> BoxedStrategy<Fields> {
    prop_oneof![(100 - percent).max(1) => Just(Vec::new()), percent.max(1) => field(key, value)]
        .boxed()
}

fn all_of(parts: Vec<BoxedStrategy<Fields>>) -> BoxedStrategy<Fields> {
    parts.prop_map(|parts| parts.concat()).boxed()
}

fn raw(choices: &[&'static str]) -> BoxedStrategy<String> {
    select(choices.to_vec()).prop_map(str::to_owned).boxed()
}

// ---------------------------------------------------------------------------------------------------------------
// Headers

fn time() -> BoxedStrategy<String> {
    raw(&[
        r#""2026-05-02T08:00:00Z""#,
        r#""2026-08-01T08:04:00.123+02:00""#,
        r#""""#,
        r#""yesterday""#,
        r#""2026-04-17""#,
    ])
}

fn agent() -> BoxedStrategy<String> {
    raw(&[
        r#""helper""#,
        r#""planner""#,
        r#""main""#,
        r#""code executor""#,
        r#""""#,
    ])
}

/// The fields of `_meta` as one generation writes them.
fn meta_fields(generation: u8) -> BoxedStrategy<Fields> {
    let mut parts = Vec::new();
    if generation >= 5 {
        parts.push(field("version", raw(&["1", "1", "1", "0", "2"])));
    }
    parts.push(field("agent", agent()));
    if generation >= 4 {
        parts.push(maybe(80, "agent_id", agent()));
        parts.push(maybe(
            80,
            "agent_type",
            raw(&[r#""root""#, r#""subagent""#]),
        ));
    }
    parts.push(field("dispatcher", raw(&[r#""native""#, r#""xml""#])));
    if generation >= 4 {
        parts.push(maybe(40, "provider", raw(&[r#""acme""#, r#""""#])));
        parts.push(maybe(40, "model", raw(&[r#""m-large""#])));
    }
    if generation == 2 {
        parts.push(maybe_not_null(60, "cache_boundary", count()));
    }
    parts.push(field("created", time()));
    parts.push(field("updated", time()));
    parts.push(field("turn_count", small_count()));
    if generation >= 6 {
        parts.push(maybe(70, "prefix_message_count", small_count()));
    }
    for key in ["input_tokens", "output_tokens", "cached_input_tokens"] {
        parts.push(field(key, count()));
    }
    parts.push(field("charged_amount_usd", amount()));
    if generation >= 3 {
        parts.push(maybe(
            70,
            "thread_id",
            raw(&[r#""thr-1""#, r#""thr-2""#, r#""   ""#, r#""""#]),
        ));
    }
    if generation >= 4 {
        parts.push(maybe(30, "task_id", raw(&[r#""task-9""#])));
    }
    if generation >= 6 {
        parts.push(maybe(60, "session_id", raw(&[r#""s-9""#])));
        parts.push(maybe(40, "parent_session_id", raw(&[r#""s-1""#])));
    }
    all_of(parts)
}

/// `_meta` as an array of its values in order: whole, cut short somewhere, or with one too many.
fn meta_array() -> BoxedStrategy<String> {
    let text = || raw(&[r#""x""#, r#""y""#]);
    let opt = || raw(&["null", r#""z""#]);
    let first = (text(), opt(), opt(), text(), opt(), opt(), text(), text());
    let second = (
        count(),
        raw(&["null", "3"]),
        count(),
        count(),
        count(),
        amount(),
        opt(),
        opt(),
        opt(),
        opt(),
    );
    let len = prop_oneof![6 => Just(19usize), 4 => 15usize..19, 1 => 0usize..15, 1 => Just(20)];
    (first, second, raw(&["0", "1", "1", "7"]), len)
        .prop_map(|(a, b, version, len)| {
            let mut values = vec![version, a.0, a.1, a.2, a.3, a.4, a.5, a.6, a.7];
            values.extend([b.0, b.1, b.2, b.3, b.4, b.5, b.6, b.7, b.8, b.9]);
            values.push("null".to_owned());
            values.truncate(len);
            format!("[{}]", values.join(","))
        })
        .boxed()
}

fn generation() -> BoxedStrategy<u8> {
    select(vec![2, 3, 4, 4, 5, 5, 6, 6]).boxed()
}

/// The value of `_meta`.
fn meta_value() -> BoxedStrategy<String> {
    let fields = generation().prop_flat_map(meta_fields).boxed();
    let plain =
        (fields.clone(), harmless(), style()).prop_map(|(f, m, style)| object(&m.apply(f), style));
    let changed = (fields, harmful(), style()).prop_map(|(f, m, style)| object(&m.apply(f), style));
    prop_oneof![30 => plain, 1 => changed, 2 => meta_array()].boxed()
}

/// A header line, valid nearly always. Some of them only where nothing but the header's own keys is looked at, which
/// is on the first line of a file (rule 2).
pub fn header_line() -> BoxedStrategy<String> {
    let around = |value: BoxedStrategy<String>| {
        (field("_meta", value), harmless(), style())
            .prop_map(|(f, m, style)| object(&m.apply(f), style))
            .boxed()
    };
    let skipping = (
        field("_meta", meta_value()),
        unknown_key(),
        skippable_value(),
        any::<bool>(),
    );
    prop_oneof![
        40 => around(meta_value()),
        1 => meta_value().prop_map(|meta| format!("[{meta}]")),
        2 => skipping.prop_map(|(mut fields, key, value, before)| {
            fields.insert(usize::from(!before), (key, value));
            object(&fields, Style::Compact)
        }),
        1 => (generation().prop_flat_map(meta_fields), unknown_key(), skippable_value()).prop_map(|(mut f, key, value)| {
            f.push((key, value));
            format!("{{\"_meta\":{}}}", object(&f, Style::Compact))
        }),
    ]
    .boxed()
}

/// What stands where a header should.
fn no_header() -> BoxedStrategy<String> {
    prop_oneof![
        message_line(),
        raw(&[
            r#"{"_meta":null}"#,
            r#"{"_meta":{}}"#,
            r#"{"_meta":[]}"#,
            "[]",
            "{}",
            "null",
            "{\"type\":\"title\"}",
            "\u{feff}",
            "\0\0\0",
            "# Session transcript",
        ]),
        meta_value().prop_map(|meta| format!("{{\"_meta\":{meta},\"_meta\":{meta}}}")),
        meta_value().prop_map(|meta| format!("{{\"_meta\":{meta}}} x")),
        meta_value().prop_map(|meta| format!("[{meta},1]")),
        meta_value().prop_map(|meta| format!("{{\"meta\":{meta}}}")),
        meta_value().prop_map(|meta| format!("{{\"_meta\":{meta}")),
    ]
    .boxed()
}

// ---------------------------------------------------------------------------------------------------------------
// Message lines

fn role() -> BoxedStrategy<String> {
    raw(&[
        r#""user""#,
        r#""assistant""#,
        r#""tool""#,
        r#""system""#,
        r#""user""#,
        r#""developer""#,
        r#""""#,
    ])
}

fn extra_metadata() -> BoxedStrategy<String> {
    prop_oneof![
        6 => json_value(),
        3 => raw(&[
            r#"{"source":"cron"}"#, r#"{"openhuman_turn_usage":null,"a":1}"#, r#"{"openhuman_turn_usage":{"old":[1.0,-0]}}"#,
            r#"{"value":1,"openhuman_turn_usage":[]}"#, r#"{"openhuman_turn_usage":1,"openhuman_turn_usage":2}"#, "[1]", "7",
            r#""text""#, "false", "{}",
        ]),
        2 => deep_value(),
        1 => deep_value().prop_map(|deep| format!(r#"{{"openhuman_turn_usage":{deep}}}"#)),
    ]
    .boxed()
}

/// Usage of generation 2 and 3, without a window; of 4 and later, with one; as an array; or not fitting.
fn usage() -> BoxedStrategy<String> {
    let numbers = (count(), count(), count(), count(), amount());
    (numbers, 0u8..72, json_value(), deep_value())
        .prop_map(|((input, output, cached, window, cost), form, any, deep)| match form {
            0..=11 | 40.. => format!(r#"{{"input":{input},"output":{output},"cached_input":{cached},"cost_usd":{cost}}}"#),
            12 | 13 => format!("[{input},{output},{cached},{window},{cost}]"),
            14 => format!("[{input},{output},{cached},{cost}]"),
            15 => format!("[{input},{output},{cached},{window},{cost},0]"),
            16 => format!(r#"{{"input":{input},"output":{output}}}"#),
            17 => format!(r#"{{"input":{input},"input":0,"output":{output},"cached_input":{cached},"cost_usd":{cost}}}"#),
            18 => format!(r#"{{"input":{input},"output":{output},"cached_input":{cached},"context_window":null,"cost_usd":{cost}}}"#),
            19 => format!(r#"{{"input":{input},"output":{output},"cached_input":{cached},"cost_usd":{cost},"x":{deep}}}"#),
            20..=23 => format!(
                r#"{{"x":0,"cost_usd":{cost},"cached_input":{cached},"output":{output},"input":{input},"x":{any}}}"#
            ),
            _ => format!(
                r#"{{"input":{input},"output":{output},"cached_input":{cached},"context_window":{window},"cost_usd":{cost}}}"#
            ),
        })
        .boxed()
}

fn tool_call() -> BoxedStrategy<String> {
    let id = raw(&[r#""c1""#, r#""c2""#, r#""""#]);
    let arguments = raw(&[
        r#""{}""#,
        r#""{\"command\":\"ls\"}""#,
        r#""not json""#,
        r#""""#,
    ]);
    let extra = prop_oneof![3 => json_value(), 1 => deep_value()];
    (
        id,
        raw(&[r#""shell""#, r#""sum""#]),
        arguments,
        extra,
        0u8..64,
    )
        .prop_map(|(id, name, arguments, extra, form)| match form {
            0 | 1 => format!("[{id},{name},{arguments}]"),
            2 => format!("[{id},{name},{arguments},{extra}]"),
            3 => format!("[{id},{name}]"),
            4 => format!("[{id},{name},{arguments},{extra},1]"),
            5 => format!(r#"{{"id":{id},"name":{name},"arguments":{{}}}}"#),
            6 => format!(r#"{{"id":{id},"id":{id},"name":{name},"arguments":{arguments}}}"#),
            7..=9 => {
                format!(r#"{{"type":"function","id":{id},"name":{name},"arguments":{arguments}}}"#)
            }
            10..=19 | 44.. => format!(
                r#"{{"id":{id},"name":{name},"arguments":{arguments},"extra_content":{extra}}}"#
            ),
            20 => format!(
                r#"{{"arguments":{arguments},"extra_content":null,"name":{name},"id":{id}}}"#
            ),
            _ => format!(r#"{{"id":{id},"name":{name},"arguments":{arguments}}}"#),
        })
        .boxed()
}

fn tool_calls() -> BoxedStrategy<String> {
    vec(tool_call(), 0..3)
        .prop_map(|calls| format!("[{}]", calls.join(",")))
        .boxed()
}

fn part() -> BoxedStrategy<String> {
    let media = (
        raw(&["audio", "video", "document"]),
        raw(&[
            r#"{"type":"path","path":"memo.wav"}"#,
            r#"{"url":"https://a/b","type":"url"}"#,
            r#"{"type":"path","path":"a","url":"b"}"#,
            r#"{"type":"path","path":"a","path":"b"}"#,
        ]),
        // Without a type it is no part, and so there are no parts at all.
        prop_oneof![
            8 => raw(&[r#","mime_type":"audio/wav""#, r#","mime_type":"","x":[1]"#]),
            1 => raw(&["", r#","mime_type":null"#, r#","x":[1]"#]),
        ],
    );
    prop_oneof![
        8 => quoted().prop_map(|text| format!(r#"{{"type":"text","text":{text}}}"#)),
        8 => raw(&[
            r#"{"type":"image","url":"data:image/png;base64,AAAA"}"#, r#"{"url":"https://a/b]","type":"image","detail":"low"}"#,
        ]),
        4 => media.prop_map(|(kind, source, more)| format!(r#"{{"type":"{kind}","source":{source}{more}}}"#)),
        1 => raw(&[
            r#"{"type":"hologram"}"#, r#"{"type":"text"}"#, r#"{"text":"no type"}"#, r#"{"type":"audio","source":"a"}"#, "null", "[]",
            r#"{"type":"video","source":{"type":"path","path":1}}"#, r#"{"type":"document","source":{"type":"url","url":"u"},"mime_type":1}"#,
            r#"{"type":"text","text":1,"text":"last"}"#, r#"["text","as an array"]"#, r#"["image"]"#, r#"{"type":0,"text":"t"}"#,
            r#"["audio",["url","u"],null]"#, r#"{"type":"image","type":"text","text":"t"}"#,
        ]),
    ]
    .boxed()
}

fn parts() -> BoxedStrategy<String> {
    prop_oneof![
        12 => vec(part(), 0..4).prop_map(|parts| format!("[{}]", parts.join(","))),
        1 => json_value(),
    ]
    .boxed()
}

/// Fields that any line may have.
fn common_fields() -> BoxedStrategy<Fields> {
    all_of(vec![
        maybe(25, "id", raw(&[r#""m-1""#, r#""c1""#, r#""""#])),
        maybe(25, "extra_metadata", extra_metadata()),
        maybe(20, "request_id", raw(&[r#""r1""#, r#""r2""#])),
        maybe_not_null(
            5,
            "cache_breakpoints",
            raw(&["[]", "[8]", "[0,18446744073709551615]", "[1.0]"]),
        ),
        maybe_not_null(8, "failure", raw(&["true", "false"])),
        maybe(8, "failure_detail", raw(&[r#""exit 1""#])),
        maybe_not_null(5, "interrupted", raw(&["true", "false", "false"])),
        maybe(
            5,
            "background",
            prop_oneof![
                raw(&[r#"{"idempotency_key":"job-1","provenance":"cron"}"#]),
                json_value()
            ],
        ),
    ])
}

/// What an assistant line of generation 2 or 3 has beside its text: no `provider`, so no turn usage.
fn old_turn_fields() -> BoxedStrategy<Fields> {
    all_of(vec![
        field("model", raw(&[r#""m-small""#])),
        maybe(90, "usage", usage()),
        maybe(90, "ts", time()),
        maybe(30, "tool_calls", tool_calls()),
        maybe(30, "iteration", small_count()),
    ])
}

/// The same of generation 4 and later; each of the four that a turn usage needs is there nearly always.
fn turn_fields() -> BoxedStrategy<Fields> {
    all_of(vec![
        maybe(97, "provider", raw(&[r#""acme""#, r#""""#])),
        maybe(97, "model", raw(&[r#""m-large""#, r#""""#])),
        maybe(97, "usage", usage()),
        maybe(97, "ts", time()),
        maybe(30, "reasoning_content", quoted()),
        maybe(40, "tool_calls", tool_calls()),
        maybe(60, "iteration", small_count()),
    ])
}

/// A typed row of generation 6, of a shape and with fields that mostly go together.
fn typed_fields() -> BoxedStrategy<Fields> {
    let calls = all_of(vec![
        field("role", raw(&[r#""assistant""#])),
        field("shape", raw(&[r#""assistant_calls""#])),
        maybe(95, "tool_calls", tool_calls()),
    ]);
    let result = all_of(vec![
        field("role", raw(&[r#""tool""#])),
        field("shape", raw(&[r#""tool_result""#])),
        maybe(95, "tool_call_id", quoted()),
    ]);
    let parts = all_of(vec![
        field("role", raw(&[r#""user""#])),
        field("shape", raw(&[r#""user_parts""#])),
        maybe(95, "parts", parts()),
    ]);
    let any = all_of(vec![
        field("role", role()),
        maybe(
            70,
            "shape",
            raw(&[
                r#""hologram""#,
                r#""user_parts""#,
                r#""assistant_calls""#,
                r#""tool_result""#,
            ]),
        ),
        maybe(40, "parts", parts_or_any()),
        maybe(40, "tool_calls", tool_calls()),
        maybe(40, "tool_call_id", quoted()),
    ]);
    let shaped = prop_oneof![4 => calls, 4 => result, 4 => parts, 1 => any].boxed();
    all_of(vec![
        shaped,
        field("content", quoted()),
        field(
            "v",
            raw(&["2", "2", "2", "2", "2", "2", "2", "2", "3", "1", "0"]),
        ),
    ])
}

fn parts_or_any() -> BoxedStrategy<String> {
    prop_oneof![parts(), json_value()].boxed()
}

fn message_fields() -> BoxedStrategy<Fields> {
    let plain = all_of(vec![field("role", role()), field("content", quoted())]);
    let assistant = all_of(vec![
        field("role", raw(&[r#""assistant""#])),
        field("content", quoted()),
    ]);
    let full_typed = all_of(vec![typed_fields(), turn_fields()])
        // The turn's own `tool_calls` would be the row's a second time.
        .prop_map(|fields| {
            let mut seen = Vec::new();
            fields
                .into_iter()
                .filter(|(key, _)| {
                    !seen.contains(key) && {
                        seen.push(key.clone());
                        true
                    }
                })
                .collect()
        })
        .boxed();
    let body = prop_oneof![
        10 => plain.clone(),
        4 => all_of(vec![assistant.clone(), old_turn_fields()]),
        6 => all_of(vec![assistant, turn_fields()]),
        // Fields of a turn on a line of another role, where they never make a turn usage.
        1 => all_of(vec![plain, turn_fields()]),
        4 => typed_fields(),
        2 => full_typed,
    ]
    .boxed();
    mutated(all_of(vec![body, common_fields()]))
}

/// A message line of any generation, mostly valid.
pub fn message_line() -> BoxedStrategy<String> {
    (message_fields(), style())
        .prop_map(|(fields, style)| object(&fields, style))
        .boxed()
}

/// A partial answer (rule 5).
fn partial_line() -> BoxedStrategy<String> {
    let fields = all_of(vec![
        field("role", raw(&[r#""assistant""#])),
        field("content", quoted()),
        field("interrupted", raw(&["true"])),
        maybe(50, "reasoning_content", quoted()),
        maybe(50, "request_id", raw(&[r#""r2""#])),
    ]);
    (mutated(fields), style())
        .prop_map(|(fields, style)| object(&fields, style))
        .boxed()
}

/// A compaction, with entries that may be partial, typed, or spoil it.
fn compaction_line() -> BoxedStrategy<String> {
    let entry = prop_oneof![16 => message_line(), 2 => partial_line(), 1 => raw(&["[]", "null", r#"{"role":"user"}"#])];
    let replacement = vec(entry, 0..4).prop_map(|entries| format!("[{}]", entries.join(",")));
    let fields = all_of(vec![
        field("kind", raw(&[r#""compaction""#])),
        field("replacement", replacement),
        maybe(80, "ts", time()),
        maybe(60, "request_id", raw(&[r#""r3""#])),
    ]);
    (mutated(fields), style())
        .prop_map(|(fields, style)| object(&fields, style))
        .boxed()
}

fn tools_line() -> BoxedStrategy<String> {
    let fields = all_of(vec![
        field("kind", raw(&[r#""tools""#])),
        field(
            "tools",
            prop_oneof![
                raw(&[r#"[{"name":"shell","parameters":{}}]"#, "null"]),
                json_value()
            ],
        ),
        maybe(80, "ts", time()),
    ]);
    (mutated(fields), style())
        .prop_map(|(fields, style)| object(&fields, style))
        .boxed()
}

/// Lines on which rule 3's order of questions shows.
fn odd_record() -> BoxedStrategy<String> {
    prop_oneof![
        raw(&[
            r#"{"kind":"message","role":"user","content":"another kind"}"#,
            r#"{"kind":"compaction","kind":"note","role":"user","content":"last kind counts"}"#,
            r#"{"kind":"note","kind":"compaction","replacement":[]}"#,
            r#"{"kind":"tools","kind":"tools","tools":1}"#,
            r#"{"kind":["compaction"],"role":"user","content":"no string"}"#,
            r#"{"kind":"compaction","replacement":null}"#,
            r#"{"kind":"compaction","role":"user","content":"no replacement"}"#,
            r#"{"kind":"tools"}"#,
            r#"{"_meta":null,"role":"user","content":"a header all the same"}"#,
            r#"{"\u005fmeta":1,"role":"user","content":"spelled otherwise"}"#,
            r#"{"content":"who said this?"}"#,
            r#"["user","an array"]"#,
            "[]",
            "{}",
            "null",
            "42",
            r#""text""#,
            "\u{feff}",
            "}{",
        ]),
        message_fields().prop_map(|fields| {
            let values: Vec<String> = fields.into_iter().map(|(_, value)| value).collect();
            format!("[{}]", values.join(","))
        }),
        meta_value().prop_map(|meta| format!("[{meta}]")),
        meta_value()
            .prop_map(|meta| format!(r#"{{"kind":"compaction","replacement":[],"_meta":{meta}}}"#)),
    ]
    .boxed()
}

// ---------------------------------------------------------------------------------------------------------------
// Whole transcripts

/// One line after the header, without its newline: a record of any kind, whole or damaged.
pub fn record_line() -> BoxedStrategy<Vec<u8>> {
    let record = prop_oneof![
        60 => message_line(),
        3 => partial_line(),
        3 => compaction_line(),
        2 => tools_line(),
        5 => header_line(),
        2 => odd_record(),
    ]
    .boxed();
    let bytes = |text: BoxedStrategy<String>| text.prop_map(String::into_bytes).boxed();
    let torn = (record.clone(), any::<Index>()).prop_map(|(line, at)| {
        let mut line = line.into_bytes();
        line.truncate(at.index(line.len() + 1));
        line
    });
    let spliced = (torn.clone(), bytes(record.clone())).prop_map(|(mut first, second)| {
        first.extend(second);
        first
    });
    let poisoned = (
        record.clone(),
        any::<Index>(),
        select(vec![
            &b"\xff"[..],
            b"\xe9",
            b"\xf0\x9f",
            b"\xed\xa0\x80",
            b"\xc0\xaf",
        ]),
    );
    let poisoned = poisoned.prop_map(|(line, at, bad)| {
        let mut line = line.into_bytes();
        let at = at.index(line.len() + 1);
        line.splice(at..at, bad.iter().copied());
        line
    });
    let padding = || {
        raw(&[
            "", " ", "\t", "\u{a0}", "\u{3000}", "\u{85}", "\u{2028}", "\r", "  ", "\r\t", "",
            "\0", "\u{feff}", "\u{200b}",
        ])
    };
    let padded = (padding(), record.clone(), padding())
        .prop_map(|(a, line, b)| format!("{a}{line}{b}").into_bytes());
    prop_oneof![
        90 => bytes(record),
        4 => blank_line().prop_map(String::into_bytes),
        1 => torn,
        1 => spliced,
        1 => poisoned,
        3 => padded,
    ]
    .boxed()
}

/// Only white space, of any kind that `str::trim` knows.
fn blank_line() -> BoxedStrategy<String> {
    raw(&[
        "",
        "",
        " ",
        "\t \t",
        "\r",
        "\u{a0}",
        "\u{3000}",
        "\u{85}",
        "\u{2028}\u{2029}",
        "\u{b}\u{c}",
        "\u{1680}\u{2007}",
    ])
}

/// What comes before the first line, the lines, what ends each, and how the file ends.
pub fn transcript() -> BoxedStrategy<Vec<u8>> {
    let header = prop_oneof![
        30 => header_line().prop_map(String::into_bytes),
        1 => no_header().prop_map(String::into_bytes),
        1 => record_line(),
    ];
    let before = prop_oneof![8 => Just(Vec::new()), 1 => vec(blank_line().prop_map(String::into_bytes), 1..3)];
    let newline = prop_oneof![8 => Just(&b"\n"[..]), 2 => Just(&b"\r\n"[..])];
    let bom = prop_oneof![10 => Just(&b""[..]), 1 => Just(&b"\xEF\xBB\xBF"[..])];
    let tail = prop_oneof![
        6 => Just(None),
        1 => (record_line(), any::<Index>()).prop_map(Some),
    ];
    let whole = (
        bom,
        before,
        header,
        vec(record_line(), 0..14),
        newline,
        any::<bool>(),
        tail,
    )
        .prop_map(|(bom, before, header, records, newline, ended, tail)| {
            let mut lines = before;
            lines.push(header);
            lines.extend(records);
            let mut file = bom.to_vec();
            file.extend(lines.join(newline));
            if ended || tail.is_some() {
                file.extend(newline);
            }
            if let Some((line, at)) = tail {
                // A process that died while it wrote: the cut may fall inside a character.
                file.extend(&line[..at.index(line.len() + 1)]);
            }
            file
        });
    prop_oneof![
        40 => whole.clone(),
        1 => select(vec![&b""[..], b"\n", b" \n\n", b"\xEF\xBB\xBF", b"\xEF\xBB\xBF\n", "\u{a0}\n".as_bytes()]).prop_map(<[u8]>::to_vec),
        // Other encodings, and bytes of no encoding.
        1 => whole.prop_map(|file| utf16(&file)),
        1 => vec(any::<u8>(), 0..60),
    ]
    .boxed()
}

fn utf16(file: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(file);
    std::iter::once(0xFEFF)
        .chain(text.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect()
}

/// A transcript in which nothing is damaged, as the application would have written it in one generation.
pub fn clean_transcript() -> BoxedStrategy<Vec<u8>> {
    generation()
        .prop_flat_map(|generation| {
            let plain = all_of(vec![field("role", role()), field("content", quoted())]);
            let turn = if generation < 4 {
                old_turn_fields()
            } else {
                turn_fields()
            };
            let assistant = all_of(vec![
                field("role", raw(&[r#""assistant""#])),
                field("content", quoted()),
                turn,
            ]);
            let message = prop_oneof![2 => plain, 1 => assistant];
            (meta_fields(generation), vec(message, 0..8))
        })
        .prop_map(|(meta, messages)| {
            let mut file = format!("{{\"_meta\":{}}}\n", object(&meta, Style::Compact));
            for fields in messages {
                file.push_str(&object(&fields, Style::Compact));
                file.push('\n');
            }
            file.into_bytes()
        })
        .boxed()
}

// ---------------------------------------------------------------------------------------------------------------
// Markdown

/// Text between the tags, with what the format makes of tags inside it.
fn markdown_text() -> BoxedStrategy<String> {
    let piece = prop_oneof![
        10 => raw(&["hello", "You are main.", "april one", "two words", "日本 🚀", "- a list", "# a title", "a -> b"]),
        5 => raw(&["\n", "\n\n", " ", "\t"]),
        1 => raw(&["<!--\\/MSG-->", "<!--/MSG-->", "\n<!--/MSG-->", "<!--MSG role=\"x\"-->", "-->", "\"-->", "\r\n", "\u{2028}"]),
        1 => raw(&["\n---\n", "\n---\n\n## [user]\n\n", "\n\n---\n\n## [user]\n\n", "### Thoughts\n\n", "\n\n\n", "_provider: `x`"]),
        1 => raw(&["<!-- session_transcript\nagent: inner\n-->"]),
    ];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat()).boxed()
}

fn legacy_header() -> BoxedStrategy<String> {
    let line = prop_oneof![
        3 => raw(&["agent: main", "agent: code_executor", "dispatcher: native", "dispatcher: xml", "cache_boundary: 120"]),
        3 => raw(&["created: 2026-04-01T10:00:00Z", "updated: 2026-04-01T10:04:00Z", "thread_id: thr-1", "cache_hit_pct: 12.5"]),
        3 => raw(&["turn_count: 3", "input_tokens: 10", "output_tokens: 5", "cached_input_tokens: 3", "charged_usd: $0.01"]),
        1 => raw(&[
            "agent:", "agent:  spaced  ", "  dispatcher: indented", "turn_count: many", "turn_count: +2", "input_tokens: -1",
            "charged_usd: 0.5", "charged_usd: $$1e400", "charged_usd: NaN", "charged_usd: $ 1", "thread_id:", "agent_id: x", "",
            "created : no", "updated:2026", "output_tokens: 18446744073709551616", "agent: crlf\r",
        ]),
    ];
    let open = raw(&[
        "<!-- session_transcript",
        "<!-- session_transcript",
        "<!-- session_transcript_v0",
    ]);
    let close = prop_oneof![12 => raw(&["\n-->", "\n -->"]), 1 => raw(&["-->", " -->", ""])];
    (open, vec(line, 0..10), close)
        .prop_map(|(open, lines, close)| format!("{open}\n{}{close}\n", lines.join("\n")))
        .boxed()
}

fn legacy_message() -> BoxedStrategy<String> {
    let role = prop_oneof![12 => raw(&["user", "assistant", "system", "tool"]), 1 => raw(&["", "a b", "x\"y", "x\ny"])];
    let (open, close) = ("<!--MSG role=\"", "<!--/MSG-->");
    (role, markdown_text(), 0u8..40)
        .prop_map(move |(role, text, form)| match form {
            // A closing tag missing, on the same line, or doubled; no line of its own for the content.
            0 => format!("{open}{role}\"-->\n{text}\n"),
            1 => format!("{open}{role}\"-->\n{text}{close}\n"),
            2 => format!("{open}{role}\"-->{text}\n{close}\n"),
            3 => format!("{open}{role}\"-->\n{text}\n{close}{close}\n"),
            4 => format!("{open}{role}\"-->\r\n{text}\r\n{close}\r\n"),
            5 => format!("{open}{role}\"-->\n{close}\n"),
            6 => format!("{open}{role}-->\n{text}\n{close}\n"),
            _ => {
                let text = text.replace("<!--/MSG-->", "<!--\\/MSG-->");
                format!("{open}{role}\"-->\n{text}\n{close}\n")
            }
        })
        .boxed()
}

/// A legacy Markdown transcript; the header mostly first, mostly there.
pub fn legacy_markdown() -> BoxedStrategy<Vec<u8>> {
    let between = prop_oneof![12 => raw(&["\n", "", "\n\n"]), 1 => raw(&["a note\n", "\u{a0}\n", "  stray  \n\n", "<!-- a comment -->\n"])];
    let pieces = vec((between, legacy_message()), 0..6);
    let place =
        prop_oneof![12 => Just(Some(0usize)), 1 => (0usize..6).prop_map(Some), 1 => Just(None)];
    (legacy_header(), pieces, place, any::<Index>(), 0u8..40)
        .prop_map(|(header, pieces, place, cut, damage)| {
            let mut parts: Vec<String> = pieces.into_iter().map(|(a, b)| a + &b).collect();
            if let Some(at) = place {
                parts.insert(at.min(parts.len()), header);
            }
            let mut file = parts.concat().into_bytes();
            match damage {
                0 => file.truncate(cut.index(file.len() + 1)),
                1 => file.insert(cut.index(file.len() + 1), 0xE9),
                2 => file.splice(0..0, *b"\xEF\xBB\xBF").for_each(drop),
                3 => {
                    file = String::from_utf8_lossy(&file)
                        .replace('\n', "\r\n")
                        .into_bytes()
                }
                _ => {}
            }
            file
        })
        .boxed()
}

fn rendered_header() -> BoxedStrategy<String> {
    let item = |percent: u32, text: BoxedStrategy<String>| prop_oneof![(100 - percent).max(1) => Just(String::new()), percent => text.prop_map(|text| text + "\n")];
    let title = prop_oneof![30 => raw(&["# Session transcript — helper", "# Session transcript — code executor"]),
        1 => raw(&["# Session transcript — ", "# Session transcript - dash", "# notes", ""])];
    let names = (
        item(98, raw(&["- Dispatcher: native", "- Dispatcher: xml"])),
        item(50, raw(&["- Agent ID: `helper`", "- Agent ID: helper"])),
        item(50, raw(&["- Agent type: `root`"])),
        item(30, raw(&["- Provider: `acme`"])),
        item(30, raw(&["- Model: `m-large`"])),
        item(20, raw(&["- Task: `task-9`"])),
        item(50, raw(&["- Thread: `thr-1`", "- Thread: `with ` tick`"])),
    );
    let counts = (
        item(98, raw(&["- Turns: 2", "- Turns: 0", "- Turns: many"])),
        item(
            70,
            raw(&[
                "- Tokens: 40 in / 12 out / 8 cached (20.0% hit)",
                "- Tokens: 1 in / 0 out / 0 cached (0.0% hit)",
            ]),
        ),
        item(60, raw(&["- Charged: $0.002100", "- Charged: $12.000000"])),
        item(98, raw(&["- Updated: 2026-05-02T08:09:00Z", "- Updated: "])),
    );
    (title, names, counts)
        .prop_map(|(title, n, c)| {
            format!(
                "{title}\n\n{}{}{}{}{}{}{}{}{}{}{}",
                n.0, n.1, n.2, n.3, n.4, n.5, n.6, c.0, c.1, c.2, c.3
            )
        })
        .boxed()
}

fn rendered_message() -> BoxedStrategy<String> {
    let role =
        prop_oneof![20 => raw(&["user", "assistant", "system", "tool"]), 1 => raw(&["", "a b"])];
    let usage = prop_oneof![
        20 => raw(&[" · m-small · 10 in / 4 out / 0 cached · $0.000100", " · a · b · 1 in / 2 out / 3 cached · $0.000000"]),
        1 => raw(&[" · m-small", " · m-small · 10 in / 4 out · $1", " extra", " ·  · 0 in / 0 out / 0 cached · $0.000000"]),
    ];
    let provider = prop_oneof![
        10 => raw(&["_provider: `acme` · iteration: 2 · context window: 128000_\n"]),
        1 => raw(&["_provider: `` · iteration: 0 · context window: 1_\n", "_provider: `a` · iteration: x · context window: 1_\n"]),
    ];
    let thoughts = markdown_text().prop_map(|text| format!("\n### Thoughts\n\n{text}\n\n"));
    (
        role,
        option::weighted(
            0.4,
            (usage, option::of(provider), option::weighted(0.3, thoughts)),
        ),
        markdown_text(),
    )
        .prop_map(|(role, more, text)| {
            let (usage, provider, thoughts) = more.unwrap_or_default();
            let (provider, thoughts) = (provider.unwrap_or_default(), thoughts.unwrap_or_default());
            format!("\n---\n\n## [{role}]{usage}\n{provider}{thoughts}\n{text}\n")
        })
        .boxed()
}

/// A rendered view, with content that sometimes looks like one itself.
pub fn rendered_markdown() -> BoxedStrategy<Vec<u8>> {
    (
        rendered_header(),
        vec(rendered_message(), 0..6),
        any::<Index>(),
        0u8..40,
    )
        .prop_map(|(header, messages, cut, damage)| {
            let mut file = (header + &messages.concat()).into_bytes();
            match damage {
                0 => file.truncate(cut.index(file.len() + 1)),
                1 => file.insert(cut.index(file.len() + 1), 0xE9),
                2 => file.splice(0..0, *b"\xEF\xBB\xBF").for_each(drop),
                _ => {}
            }
            file
        })
        .boxed()
}

// ---------------------------------------------------------------------------------------------------------------
// Workspaces

/// Few stems, so that one often comes several times: root sessions, sub-agents one and two levels down (some of a
/// parent that is not there), numbered ones, and names that are odd to a store.
fn stem() -> BoxedStrategy<String> {
    prop_oneof![
        8 => raw(&["1777708800_helper", "1777708801_planner", "1785571200_main"]),
        4 => raw(&["1777708800_helper__1777708900_worker", "1777708800_helper__1777708900_worker__1777709000_deep"]),
        4 => raw(&["main_0", "main_1", "planner_0"]),
        2 => raw(&["1777700000_gone__1777700001_orphan", "__1777700002_noparent", "main_0__main_1"]),
        2 => raw(&["1777708802_Helper", "1777708802_helper", "1777708803_zwei wörter", "1777708804_a.b", "con", "notes"]),
    ]
    .boxed()
}

fn raw_folder() -> BoxedStrategy<String> {
    prop_oneof![
        8 => raw(&["session_raw"]),
        4 => raw(&["session_raw/01042026", "session_raw/02042026"]),
        3 => raw(&["session_raw-work", "session_raw-home"]),
        // Folders that are not scanned.
        1 => raw(&["session_raw/archive", "session_raw/1042026", "session_raw-work/01042026", "session_raw-", "old/session_raw"]),
    ]
    .boxed()
}

fn markdown_folder() -> BoxedStrategy<String> {
    prop_oneof![
        6 => raw(&["sessions/2026_04_01", "sessions/2026_04_02"]),
        3 => raw(&["sessions/01042026", "sessions/02042026"]),
        1 => raw(&["sessions/any name", "sessions", "session_raw", "sessions/2026_04_01/deeper"]),
    ]
    .boxed()
}

/// How a file of a workspace relates to the one before it.
#[derive(Debug, Clone)]
enum Relation {
    Own,
    /// An older copy: the same bytes.
    Copy,
    /// The same session further on: its bytes and these.
    Longer(Vec<u8>),
    /// The same session earlier: its first lines.
    Shorter(Index),
    /// The same stem in another place, with content of its own.
    SameStem,
}

/// A small workspace: relative paths with `/`, each once (also regardless of case), and the bytes of each.
pub fn workspace() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let transcript = prop_oneof![3 => clean_transcript(), 1 => transcript()];
    let markdown = prop_oneof![legacy_markdown(), rendered_markdown()];
    let more = vec(message_line(), 1..3).prop_map(|lines| {
        let mut bytes = lines.join("\n").into_bytes();
        bytes.push(b'\n');
        bytes
    });
    let relation = prop_oneof![
        8 => Just(Relation::Own),
        1 => Just(Relation::Copy),
        1 => more.prop_map(Relation::Longer),
        1 => any::<Index>().prop_map(Relation::Shorter),
        2 => Just(Relation::SameStem),
    ];
    let jsonl = (raw_folder(), stem(), transcript, relation)
        .prop_map(|(folder, stem, bytes, relation)| (folder, stem, "jsonl", bytes, relation));
    let md = (
        markdown_folder(),
        stem(),
        markdown,
        prop_oneof![4 => Just(Relation::Own), 2 => Just(Relation::SameStem)],
    )
        .prop_map(|(folder, stem, bytes, relation)| (folder, stem, "md", bytes, relation));
    let other = select(vec![
        ("session_raw", "1777708800_helper", "JSONL"),
        ("session_raw", "1777708800_helper", "jsonl.bak"),
        ("session_raw", "._1777708800_helper", "jsonl"),
        ("session_raw", ".transcript-locks", "jsonl"),
        ("sessions/2026_04_01", "README", "md"),
        ("sessions/2026_04_01", "notes", "txt"),
        ("session_db", "notes", "txt"),
        (".openhuman", "subagent_sessions", "json"),
    ])
    .prop_map(|(folder, stem, extension)| {
        let bytes = if extension == "json" {
            b"[]".to_vec()
        } else {
            b"# notes\nmy own\n".to_vec()
        };
        (
            folder.to_owned(),
            stem.to_owned(),
            extension,
            bytes,
            Relation::Own,
        )
    });
    vec(prop_oneof![8 => jsonl, 3 => md, 1 => other], 0..9).prop_map(|entries| {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        let mut before: Option<(String, Vec<u8>)> = None;
        for (folder, mut stem, extension, mut bytes, relation) in entries {
            if let Some((last_stem, last)) = &before
                && !matches!(relation, Relation::Own)
            {
                stem.clone_from(last_stem);
                match relation {
                    Relation::Copy => bytes.clone_from(last),
                    Relation::Longer(more) => bytes = [&last[..], &more].concat(),
                    Relation::Shorter(at) => {
                        let ends: Vec<usize> = (0..last.len())
                            .filter(|i| last[*i] == b'\n')
                            .map(|i| i + 1)
                            .collect();
                        let end = if ends.is_empty() {
                            last.len()
                        } else {
                            ends[at.index(ends.len())]
                        };
                        bytes = last[..end].to_vec();
                    }
                    Relation::Own | Relation::SameStem => {}
                }
            }
            let path = format!("{folder}/{stem}.{extension}");
            if files
                .iter()
                .any(|(other, _)| other.to_lowercase() == path.to_lowercase())
            {
                continue;
            }
            if extension == "jsonl" && !stem.starts_with('.') {
                before = Some((stem, bytes.clone()));
            }
            files.push((path, bytes));
        }
        files
    })
}
