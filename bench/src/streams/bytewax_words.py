"""Words of a file, counted by bytewax with recovery: words.py WORDS STATE OUT LINES_PER_BATCH; prints the seconds."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

words, state, out, lines_per_batch = sys.argv[1:]
Path(out).touch()
init_db_dir(Path(state), 1)

flow = Dataflow("words")
lines = op.input("lines", flow, FileSource(words, batch_size=int(lines_per_batch)))
split = op.flat_map("words", lines, str.split)
counts = op.count_final("count", split, lambda word: word)
shown = op.map("shown", counts, lambda pair: (pair[0], f"{pair[0]} {pair[1]}"))
op.output("out", shown, FileSink(Path(out)))

start = time.perf_counter()
# An epoch ends, and is durable, with every batch.
cluster_main(flow, [], 0, epoch_interval=timedelta(0), recovery_config=RecoveryConfig(state))
print(time.perf_counter() - start)
