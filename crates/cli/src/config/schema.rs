//! The JSON Schema of `onceflow.toml`, for editors; a copy is in `docs/config.schema.json`.

use super::settings::{SETTINGS, SettingKind};
use serde_json::{Map, Value, json};

const TIME: &str = r"^(0|([0-9]+(\.[0-9]+)? ?(ms|s|m|h|d|w))+)$";
const SIZE: &str = r"^[0-9]+(\.[0-9]+)? ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$";

/// Returns the schema.
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

fn default_of(kind: SettingKind, text: &str) -> Option<Value> {
    match kind {
        SettingKind::Time
        | SettingKind::Size
        | SettingKind::Path
        | SettingKind::Color
        | SettingKind::Store
        | SettingKind::ResultsMode => Some(json!(text)),
        _ => kind.read(text).ok(),
    }
}

fn of(kind: SettingKind) -> Value {
    match kind {
        SettingKind::Store | SettingKind::Path => json!({ "type": "string", "minLength": 1 }),
        SettingKind::Jobs => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
        SettingKind::Processors => json!({ "type": "number", "exclusiveMinimum": 0 }),
        SettingKind::Time => {
            json!({ "anyOf": [{ "type": "string", "pattern": TIME, "examples": ["30s", "7d"] }, { "const": 0 }] })
        }
        SettingKind::Size => json!({ "type": "string", "pattern": SIZE, "examples": ["512MiB", "2GB"] }),
        SettingKind::Bool => json!({ "type": "boolean" }),
        SettingKind::Color => json!({ "enum": ["auto", "always", "never"] }),
        SettingKind::Paths => json!({ "type": "array", "items": { "type": "string", "pattern": "^/" } }),
        SettingKind::ResultsMode => json!({ "enum": onceflow_spec::ResultsMode::WORDS }),
        SettingKind::Labels => {
            json!({ "type": "array", "items": { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,32}$" }, "maxItems": 5 })
        }
    }
}
