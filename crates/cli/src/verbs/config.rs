//! `onceflow config`: every setting with its current value; with `--origin`, also where the value comes from.

use crate::{
    args::tools,
    config::{
        Config, SettingValue,
        schema::schema,
        settings::{SETTINGS, Setting, SettingKind},
    },
    exit::Exit,
    location,
    printer::Printer,
    words,
};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Prints the settings, or their schema.
pub(crate) fn run(args: &tools::Config, config: &Config, printer: &Printer) -> Exit {
    if args.schema {
        printer.pretty(&schema());
        return Exit::Done;
    }
    let of =
        |setting: &Setting| config.get(setting.name).map(|known| (shown(setting.kind, &known.value), known.clone()));
    if printer.json {
        let one = |setting: &Setting| {
            let known = of(setting);
            let value = known.as_ref().map(|(value, _)| value.clone());
            let origin = known.map_or_else(|| String::from("default"), |(_, known)| known.origin.to_string());
            let mut data = json!({"value": value, "origin": origin, "variable": setting.variable()});
            if value.is_none() {
                data["otherwise"] = json!(setting.otherwise());
            }
            (setting.name.to_owned(), data)
        };
        printer.pretty(&Value::Object(SETTINGS.iter().map(one).collect::<Map<_, _>>()));
        return Exit::Done;
    }
    let (mut text, mut table) = (String::new(), "");
    for setting in &SETTINGS {
        let (inside, name) = setting.name.rsplit_once('.').unwrap_or(("", setting.name));
        if inside != table {
            table = inside;
            text.push_str(&format!("\n[{table}]\n"));
        }
        let line = match of(setting) {
            Some((value, known)) => told(name, &value, &known, args.origin),
            None => {
                let line = format!("# {name}: {}", setting.otherwise());
                if args.origin { format!("{line:<32} # default") } else { line }
            }
        };
        text.push_str(&format!("{line}\n"));
    }
    printer.text(text);
    let read: Vec<_> = config.files.iter().map(|path| path.display().to_string()).collect();
    printer.say(if read.is_empty() {
        String::from("no onceflow.toml was found")
    } else {
        format!("read {}", read.join(", "))
    });
    printer.next(if args.origin {
        "onceflow run FLOW.yaml"
    } else {
        "`onceflow config --origin` says where each comes from"
    });
    Exit::Done
}

fn told(name: &str, value: &Value, known: &SettingValue, origin: bool) -> String {
    let line = format!("{name} = {value}");
    if origin { format!("{line:<32} # {}", known.origin) } else { line }
}

/// Returns a value as it would stand in a file; the password in the address of a server is left out.
fn shown(kind: SettingKind, value: &Value) -> Value {
    match kind {
        SettingKind::Time => value.as_u64().map_or(Value::Null, |ms| json!(words::exact(ms))),
        SettingKind::Size => value.as_u64().map_or(Value::Null, |bytes| json!(size(bytes))),
        SettingKind::Store => {
            let given = value.as_str().unwrap_or_default();
            match given.contains("://") {
                true => json!(location::find(Some(Path::new(given)), Path::new("/")).to_string()),
                false => value.clone(),
            }
        }
        _ => value.clone(),
    }
}

/// Formats bytes exactly, in the largest unit possible.
fn size(bytes: u64) -> String {
    let units = [
        ("TiB", 1 << 40),
        ("TB", 1_000_000_000_000),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1000),
    ];
    let whole = units.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}
