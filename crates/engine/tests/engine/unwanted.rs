//! A start that is wanted only while a row is there.

use crate::support;

use onceflow_core::{Batch, Group, Row, Shard};
use onceflow_engine::{Error, RunStatus, Start};
use onceflow_store::Records;
use support::{Kit, flows::diamond, proof::Proof};

#[tokio::test]
async fn a_start_whose_row_is_gone_begins_no_run() {
    let mut kit = Kit::default();
    let (start, _) = diamond(&mut kit);
    let proof = Proof::new(&kit);
    let engine = proof.engine();
    let row = Group::rows("callers").key("one");
    let start = Start { while_there: vec![row.clone()], ..start };
    let refused = proof.drive(engine.start(start.clone())).await;
    assert!(matches!(refused, Err(Error::Unwanted { .. })), "there was no row yet");
    assert!(matches!(engine.find(&start.key).await, Err(Error::NoRun(_))));
    let mut put = Batch::new(Shard(0));
    put.put(row.clone(), Row::default());
    let _always_applied = proof.memory.commit(put).await.unwrap();
    let run = proof.drive(engine.start(start.clone())).await.unwrap();
    let ended = proof.drive(run.wait()).await.unwrap();
    assert_eq!(ended.status, RunStatus::Done);
    assert!(proof.drive(engine.forget(&ended)).await.unwrap());
    let mut delete = Batch::new(Shard(0));
    delete.delete(row);
    let _always_applied = proof.memory.commit(delete).await.unwrap();
    let refused = proof.drive(engine.start(start.clone())).await;
    assert!(matches!(refused, Err(Error::Unwanted { .. })), "a late start must not run it again");
    assert!(matches!(engine.find(&start.key).await, Err(Error::NoRun(_))));
    proof.drive(engine.close()).await.unwrap();
}
