//! The JSON Schema of `onceflow.toml`, for editors; `docs/config.schema.json` holds it.

use super::settings::{Kind, SETTINGS};
use serde_json::{Map, Value, json};

const TIME: &str = r"^(0|([0-9]+(\.[0-9]+)? ?(ms|s|m|h|d|w))+)$";
const SIZE: &str = r"^[0-9]+(\.[0-9]+)? ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$";

/// The schema.
pub(crate) fn schema() -> Value {
    let mut properties = settings();
    let inner = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    properties.insert(
        "profile".into(),
        json!({
            "type": "object",
            "description": "Settings under a name; `--profile NAME` puts them over the others.",
            "additionalProperties": inner,
        }),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://onceflow.dev/config.schema.json",
        "title": "onceflow.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn settings() -> Map<String, Value> {
    let mut all = Map::new();
    for setting in &SETTINGS {
        let mut it = of(setting.kind);
        it["description"] = json!(setting.help);
        if let Some(value) = setting.default.and_then(|default| default_of(setting.kind, default)) {
            it["default"] = value;
        }
        match setting.name.split_once('.') {
            None => drop(all.insert(setting.name.into(), it)),
            Some((table, name)) => {
                let table = all
                    .entry(table)
                    .or_insert_with(|| json!({ "type": "object", "additionalProperties": false, "properties": {} }));
                table["properties"][name] = it;
            }
        }
    }
    all
}

fn default_of(kind: Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Time | Kind::Size | Kind::Path | Kind::Color | Kind::Store | Kind::ResultsMode => Some(json!(text)),
        _ => kind.read(text).ok(),
    }
}

fn of(kind: Kind) -> Value {
    match kind {
        Kind::Store | Kind::Path => json!({ "type": "string", "minLength": 1 }),
        Kind::Jobs => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
        Kind::Processors => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Time => {
            json!({ "anyOf": [{ "type": "string", "pattern": TIME, "examples": ["30s", "7d"] }, { "const": 0 }] })
        }
        Kind::Size => json!({ "type": "string", "pattern": SIZE, "examples": ["512MiB", "2GB"] }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Color => json!({ "enum": ["auto", "always", "never"] }),
        Kind::Paths => json!({ "type": "array", "items": { "type": "string", "pattern": "^/" } }),
        Kind::ResultsMode => json!({ "enum": onceflow_spec::ResultsMode::WORDS }),
        Kind::Labels => {
            json!({ "type": "array", "items": { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,32}$" }, "maxItems": 5 })
        }
    }
}
