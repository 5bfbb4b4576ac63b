//! Counts the words in the files of a directory, one step per file, eight at a time. The counts are stored as they
//! come, so killing this and starting it again goes on where it was. Give it a directory; without one it makes its own.

use onceflow::prelude::*;
use std::{collections::BTreeMap, path::PathBuf};

#[task(effect = pure)]
fn files(directory: Directory) -> Vec<File> {
    directory.files().to_vec()
}

/// How often each word occurs. Bytes that are no text count as no words.
#[task(effect = pure)]
fn count(file: File) -> Result<BTreeMap<String, u64>, std::io::Error> {
    let text = String::from_utf8_lossy(&file.read()?).to_lowercase();
    let mut counts = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

#[task(effect = pure, outputs(total, most))]
fn merge(counts: Vec<BTreeMap<String, u64>>) -> (u64, Vec<(String, u64)>) {
    let mut all = BTreeMap::<String, u64>::new();
    for (word, n) in counts.into_iter().flatten() {
        *all.entry(word).or_default() += n;
    }
    let total = all.values().sum();
    let mut most: Vec<_> = all.into_iter().collect();
    most.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    most.truncate(5);
    (total, most)
}

#[flow(outputs(total, most))]
fn word_count(f: &mut Builder, directory: Port<Directory>) -> (Port<u64>, Port<Vec<(String, u64)>>) {
    let files = f.add(files(directory));
    let counts = f.at_most(8).each(files, |f, file| f.add(count(file)));
    f.add(merge(counts))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let place = tempfile::tempdir()?;
    let directory = match std::env::args_os().nth(1) {
        Some(directory) => PathBuf::from(directory),
        None => {
            let own = place.path().join("texts");
            std::fs::create_dir(&own)?;
            std::fs::write(own.join("one.txt"), "Once upon a time there was a flow.")?;
            std::fs::write(own.join("two.txt"), "It ran once, and once only.")?;
            own
        }
    };
    let engine = Engine::open(place.path().join("store")).await?;
    let flow = word_count::flow();
    let run = engine.start(&flow, Directory::from_path(&directory)?).key("word count").await?;
    let (total, most) = run.result().await?;
    println!("{total} words in {}", directory.display());
    for (word, n) in most {
        println!("{n:6} {word}");
    }
    engine.close().await?;
    Ok(())
}
