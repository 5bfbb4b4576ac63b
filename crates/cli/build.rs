//! Embeds all pages of `docs/errors` into the binary: a new page needs no change to a list.

use std::{env, fs, path::Path};

fn main() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    println!("cargo::rerun-if-changed={}", pages.display());
    let entries = fs::read_dir(&pages).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("OF") && name.ends_with(".md"));
    names.sort();
    let page = |name: &String| {
        let path = pages.join(name).canonicalize().expect("a page that was just listed");
        format!("    ({:?}, include_str!({:?})),\n", name.trim_end_matches(".md"), path.display().to_string())
    };
    let list: String = names.iter().map(page).collect();
    let to = Path::new(&env::var("OUT_DIR").expect("cargo says where")).join("pages.rs");
    fs::write(to, format!("&[\n{list}]\n")).expect("cargo's own directory can be written");
}
