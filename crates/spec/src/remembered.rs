//! Caches a loaded flow as bytes: as long as none of its files changes, it need not be loaded again.

use crate::LoadedFlow;
use std::fs;

impl LoadedFlow {
    /// Encodes the flow, for [`LoadedFlow::remembered`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("a flow has nothing that cannot be written down");
        [blake3::hash(&body).as_bytes().as_slice(), &body].concat()
    }

    /// Decodes a flow that the same program encoded, if loading it again would give the same: every file that it was
    /// loaded from is still found at the same path, with the same content.
    pub fn remembered(bytes: &[u8]) -> Option<LoadedFlow> {
        let (digest, body) = bytes.split_first_chunk::<32>()?;
        if blake3::hash(body).as_bytes() != digest {
            return None;
        }
        let flow: LoadedFlow = postcard::from_bytes(body).ok()?;
        let is_same = flow.files.iter().all(|file| {
            fs::canonicalize(&file.given).is_ok_and(|path| path == file.path)
                && fs::read(&file.path).is_ok_and(|bytes| onceflow_core::Digest::of(&bytes) == file.digest)
        });
        is_same.then_some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const MAIN: &str = "
flow: main
inputs:
  reads: { type: list<file>, default: [a, b], help: some }
  depth: { type: float, default: 0.5 }
  kind: enum<x, y>
steps:
  one:
    each: r in inputs.reads
    run: wc -l < ${{ r }} > ${{ out.n }}
    out: { n: file }
    undo: { run: echo gone }
  two:
    flow: other.yaml
    in: { kind: inputs.kind }
outputs: { n: one.n, said: two.said }
";
    const OTHER: &str = "
flow: other
inputs: { kind: text }
steps:
  say: { run: \"echo ${{ inputs.kind }}\", out: { said: text } }
outputs: { said: say.said }
";

    fn write(at: &Path) -> LoadedFlow {
        for (name, text) in [("a", ""), ("b", ""), ("main.yaml", MAIN), ("other.yaml", OTHER)] {
            fs::write(at.join(name), text).unwrap();
        }
        crate::load(&at.join("main.yaml"), &crate::LoadOptions::default())
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn a_flow_is_remembered_whole() {
        let at = tempfile::tempdir().unwrap();
        let flow = write(at.path());
        let remembered = LoadedFlow::remembered(&flow.to_bytes()).unwrap();
        assert_eq!(format!("{flow:?}"), format!("{remembered:?}"));
        assert_eq!(remembered.checked.library(), flow.checked.library());
        assert_eq!(remembered.checked.program(), flow.checked.program(), "it is lowered again, to the same program");
    }

    #[test]
    fn a_flow_is_forgotten_when_a_file_of_it_changes_moves_or_goes() {
        let changes: [fn(&Path); 6] = [
            |at| fs::write(at.join("main.yaml"), MAIN.replace("wc -l", "wc -c")).unwrap(),
            |at| fs::write(at.join("other.yaml"), OTHER.replace("echo", "echo so")).unwrap(),
            |at| fs::remove_file(at.join("other.yaml")).unwrap(),
            |at| fs::remove_file(at.join("main.yaml")).unwrap(),
            |at| {
                fs::rename(at.join("other.yaml"), at.join("third.yaml")).unwrap();
                std::os::unix::fs::symlink("third.yaml", at.join("other.yaml")).unwrap();
            },
            |at| fs::write(at.join("main.yaml"), [&[0xef, 0xbb, 0xbf], MAIN.as_bytes()].concat()).unwrap(),
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let at = tempfile::tempdir().unwrap();
            let bytes = write(at.path()).to_bytes();
            assert!(LoadedFlow::remembered(&bytes).is_some());
            change(at.path());
            assert!(LoadedFlow::remembered(&bytes).is_none(), "change {n}");
        }
    }

    #[test]
    fn damaged_bytes_are_no_flow() {
        let at = tempfile::tempdir().unwrap();
        let bytes = write(at.path()).to_bytes();
        for end in 0..bytes.len() {
            assert!(LoadedFlow::remembered(&bytes[..end]).is_none());
        }
        for byte in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1;
            assert!(LoadedFlow::remembered(&damaged).is_none());
        }
    }
}
