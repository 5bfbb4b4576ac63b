//! A pipeline as the body of a typed task.

use onceflow::prelude::*;
use onceflow_stream::{
    EventTime, FileSink, GivenFile, GivenFiles, LineDecoder, StepPipeline, combine::Count, ends_step_pipelines,
    window::Windowing,
};
use std::sync::Arc;

#[task(outputs(words, lines))]
async fn words(step: OpenStep, text: File) -> anyhow::Result<(File, u64)> {
    let own = StepPipeline::begin(&step).await?;
    let pipeline = own.pipeline();
    let given = GivenFile { name: text.name().into(), path: text.path().into() };
    let line: LineDecoder<String> = Arc::new(|line| Ok((line.to_owned(), EventTime(0))));
    let lines = pipeline.source("lines", GivenFiles::new(vec![given], line, own.clock()));
    let words = lines.flat_map("words", |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let counts = words.key_value("word", |word: String| (word, ())).combine("count", Windowing::global(), Count::new());
    let file = FileSink::new(own.directory().join("words.txt"));
    counts
        .gather("all")
        .sink("file", file, |count, line| line.extend(format!("{} {}\n", count.value, count.key).bytes()));
    let ended = own.run(pipeline).await?;
    let written = ended.file("words.txt").ok_or_else(|| anyhow::anyhow!("nothing was written"))?;
    Ok((File::from_path(written)?.named("words.txt"), ended.result.stages[0].counts.records_in))
}

fn flow() -> Flow<Port<File>, (Port<File>, Port<u64>)> {
    Flow::new("words", ["text"], ["words", "lines"], |f, text: Port<File>| f.add(words(text)))
}

fn text() -> (tempfile::TempDir, File) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("text");
    std::fs::write(&path, "a b\nb\n").expect("a file");
    let text = File::from_path(path).expect("a file");
    (place, text)
}

#[tokio::test]
async fn a_typed_task_runs_a_pipeline_over_the_file_it_is_given() {
    let ((place, text), flow) = (text(), flow());
    let engine = Engine::builder().state(ends_step_pipelines()).in_memory();
    let run = engine.start(&flow, text).key("today").await.expect("a run");
    let (counted, lines) = flow.outputs();
    let counted = run.output_into(&counted, place.path().join("results")).await.expect("a file");
    let lines = run.output(&lines).await.expect("a number");
    let mut counted: Vec<_> = counted.text().expect("a file").lines().map(str::to_owned).collect();
    counted.sort();
    assert_eq!((counted, lines), (vec![String::from("1 a"), String::from("2 b")], 2));
}

#[tokio::test]
async fn an_engine_that_cannot_end_pipelines_refuses_a_task_that_has_one() {
    let (_place, text) = text();
    let refused = Engine::in_memory().run(&flow(), text).await.expect_err("a refusal").to_string();
    assert!(refused.contains("EndOpenWork"), "{refused}");
}
