//! Files and directories: copied in, handed to tasks, given by them, and put where the caller wants them.

use onceflow::prelude::*;
use std::{fs, path::Path};

#[task]
fn lines(file: File) -> Result<u64, std::io::Error> {
    Ok(file.text()?.lines().count() as u64)
}

#[task]
fn join(a: File, b: File) -> Result<String, std::io::Error> {
    Ok(format!("{}={}+{}={}", a.name(), a.text()?, b.name(), b.text()?))
}

#[task]
fn upper(file: File) -> Result<File, anyhow::Error> {
    let path = tempfile::NamedTempFile::new()?.into_temp_path().keep()?;
    fs::write(&path, file.text()?.to_uppercase())?;
    Ok(File::from_path(path)?.named(format!("{}.upper", file.name())))
}

#[task]
fn names(directory: Directory) -> Vec<String> {
    directory.files().iter().map(|file| file.name().to_owned()).collect()
}

#[task]
fn nowhere() -> Result<File, std::io::Error> {
    let path = tempfile::NamedTempFile::new()?.into_temp_path();
    // It is gone when the task ends.
    File::from_path(&*path)
}

fn write(directory: &Path, name: &str, text: &str) -> File {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    File::from_path(path).unwrap()
}

#[tokio::test]
async fn the_files_a_run_is_given_stay_where_they_are() {
    let place = tempfile::tempdir().unwrap();
    let engine = Engine::open(place.path().join("store")).await.unwrap();
    let file = write(place.path(), "a.txt", "one\ntwo\n");
    let flow = Flow::new("lines", ["file"], ["lines"], |f, file: Port<File>| f.add(lines(file)));
    assert_eq!(engine.run(&flow, file.clone()).await.unwrap(), 2);
    assert_eq!(file.text().unwrap(), "one\ntwo\n");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn two_files_of_one_name_stand_apart() {
    let place = tempfile::tempdir().unwrap();
    let engine = Engine::in_memory();
    let (a, b) = (write(place.path(), "x/f", "1"), write(place.path(), "y/f", "2"));
    let flow = Flow::new("join", ["a", "b"], ["text"], |f, (a, b): (Port<File>, Port<File>)| f.add(join(a, b)));
    assert_eq!(engine.run(&flow, (a, b)).await.unwrap(), "f=1+f=2");
}

#[tokio::test]
async fn files_that_tasks_give_are_put_where_the_caller_wants_them() {
    let place = tempfile::tempdir().unwrap();
    let engine = Engine::open(place.path().join("store")).await.unwrap();
    let flow = Flow::new("upper", ["files"], ["files", "names"], |f, directory: Port<Directory>| {
        (directory, f.add(names(directory)))
    });
    write(place.path(), "in/a", "1");
    write(place.path(), "in/sub/b", "2");
    let run = engine.start(&flow, Directory::from_path(place.path().join("in")).unwrap()).await.unwrap();
    let (directory, names) = run.result_into(place.path().join("out")).await.unwrap();
    assert_eq!(names, ["a", "sub/b"]);
    assert_eq!(directory.get("sub/b").unwrap().path(), place.path().join("out/files/sub/b"));
    assert_eq!(directory.get("sub/b").unwrap().text().unwrap(), "2");

    let flow = Flow::new("one", ["file"], ["upper"], |f, file: Port<File>| f.add(upper(file)));
    let run = engine.start(&flow, write(place.path(), "t", "text")).await.unwrap();
    let file = run.output_into(&flow.outputs(), place.path().join("one")).await.unwrap();
    assert_eq!((file.name(), file.text().unwrap().as_str()), ("t.upper", "TEXT"));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_not_there_is_told_and_nothing_hangs() {
    let engine = Engine::in_memory();
    let flow = Flow::new("lines", ["file"], ["lines"], |f, file: Port<File>| f.add(lines(file)));
    let place = tempfile::tempdir().unwrap();
    let file = write(place.path(), "gone", "text");
    std::fs::remove_file(file.path()).unwrap();
    let error = engine.run(&flow, file).await.unwrap_err();
    assert!(error.to_string().contains("/gone"), "{error}");
    let flow = Flow::new("nowhere", [], ["file"], |f, (): ()| f.add(nowhere()));
    let error = engine.run(&flow, ()).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere failed at attempt 1: a file it gave cannot be stored"), "{error}");
}

#[task(outputs(all, first))]
fn split(directory: Directory) -> (Vec<File>, File) {
    (directory.files().to_vec(), directory.files()[0].clone())
}

#[tokio::test]
async fn a_task_may_give_the_files_it_was_given_and_one_of_them_twice() {
    let place = tempfile::tempdir().unwrap();
    let engine = Engine::open(place.path().join("store")).await.unwrap();
    write(place.path(), "in/a", "1");
    write(place.path(), "in/b", "2\n2");
    let flow = Flow::new("split", ["directory"], ["lines", "first"], |f, directory: Port<Directory>| {
        let (all, first) = f.add(split(directory));
        (f.each(all, |f, file| f.add(lines(file))), f.add(lines(first)))
    });
    let directory = Directory::from_path(place.path().join("in")).unwrap();
    assert_eq!(engine.run(&flow, directory).await.unwrap(), (vec![1, 2], 1));
    engine.close().await.unwrap();
}
