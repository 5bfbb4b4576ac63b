//! Every bound of the store and of flows, with its reason. Exceeding one fails at once, with an error that names it.

/// Operations in one batch, those inside triggers included. A thousand small operations take about a
/// millisecond on a shared server, and nobody else is served meanwhile.
pub const BATCH_OPS_MAX: usize = 1024;

/// Requires in one batch: one for every operation and some to spare.
pub const BATCH_REQUIRES_MAX: usize = 2048;

/// Triggers within triggers. The kernel needs two; more would be a program.
pub const TRIGGER_DEPTH_MAX: usize = 4;

/// Bytes in a row. Larger content belongs into a blob: rows live in memory.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// Bytes of all rows put by one batch: what a log group and a socket frame must be able to hold.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// Bytes in a name or in a group's id. Long paths get a short id; see rule 30 of the kernel.
pub const NAME_BYTES_MAX: usize = 512;

/// Bytes in a value's id, a root's name or a list's prefix: an index row joins a deadline, a kind, a length and
/// one of them, and must stay a lawful name.
pub const ID_BYTES_MAX: usize = 256;

/// Numbers a bitmap ranges over. Setting one bit rewrites the bitmap; wider fan-ins are trees.
pub const BITMAP_BITS_MAX: u32 = 4096;

/// Rows one `scan` answers.
pub const SCAN_ROWS_MAX: usize = 4096;

/// Rows one `get` asks for.
pub const GET_KEYS_MAX: usize = 4096;

/// Inbox rows answered with a claim. A step with more inputs reads the rest by `scan`.
pub const CLAIM_ROWS_MAX: usize = 256;

/// Queues one claim may look at.
pub const CLAIM_QUEUES_MAX: usize = 64;

/// Bytes of a queue row's name that name its lane; claims take turns between lanes.
pub const LANE_BYTES: usize = 8;

/// Bytes in one chunk read from a blob, and gathered before one write: large enough to make the way to another
/// thread cheap, small enough to have many at once.
pub const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Bytes in one part of an upload to an object store, held in memory until it is there. What fits into one part is
/// one request.
pub const PART_BYTES: usize = 16 << 20;

/// Parts of one upload: what S3 takes. With [`PART_BYTES`] this bounds an object in S3 to 160 GB.
pub const PARTS_MAX: usize = 10_000;

/// Objects one `list` answers.
pub const LIST_OBJECTS_MAX: usize = 4096;

/// Bytes of a payload that travels itself instead of by reference: copying it to a few readers is cheaper than counting.
pub const INLINE_BYTES_MAX: usize = 1024;

/// Characters of an error that a flow gets to handle.
pub const ERROR_CHARS_MAX: usize = 800;

/// Operations spent on opening elements in one batch; the rest of the batch is for what surrounds them.
pub const OPENING_OPS_MAX: usize = 700;

/// Elements opened in one batch.
pub const CHUNK_ELEMENTS_MAX: usize = 200;

/// Chunks of one each that are in flight at a time: enough that draining one does not starve the workers.
pub const LANES_MAX: u32 = 4;

/// Elements of one list. Larger collections belong into several lists.
pub const ELEMENTS_MAX: u64 = 100_000_000;

/// Frames within frames: how deep a flow may call itself.
pub const CALL_DEPTH_MAX: u32 = 1000;

/// Rows deleted by one batch when a run is removed.
pub const REMOVE_ROWS_MAX: usize = 200;

/// Operations after which a batch that removes rows takes no further row; one row may need some hundred.
pub const REMOVE_OPS_MAX: usize = 400;

/// Bytes in the key of a run: rows that say when it goes are named by it, and by a deadline.
pub const RUN_KEY_BYTES_MAX: usize = 256;

/// Inputs, and outputs, of a module or a graph (the one that `attempt` adds included). One commit brings something from
/// every output, one claim answers every input, and an opening brings all inputs and one thing more.
pub const MODULE_PORTS_MAX: usize = FAN_OUT_MAX - 1;

/// Modules in one graph, unless an engine is told otherwise (`graph_modules_max`). What is wider is usually data, and data is
/// an each.
pub const GRAPH_MODULES_MAX: usize = 100_000;

/// Graphs within graphs, through calls that are not recursive too. Checking and lowering call themselves this deep.
pub const NESTING_DEPTH_MAX: usize = 64;

/// Arms of a choice. All guards are read by one step.
pub const ARMS_MAX: usize = 64;

/// Bytes in the name of a flow, module, port or arm: addresses are for people.
pub const MODULE_NAME_BYTES_MAX: usize = 128;

/// Modules of a program after all calls that are not recursive have been expanded: it is held in memory as a whole, and
/// thirty flows that each call the next one twice would be a billion.
pub const PROGRAM_MODULES_MAX: u64 = 1_000_000;

/// Ports that one commit, or the opening of a block, brings something to. Each costs up to six operations of a batch;
/// what is wider goes through relays.
pub const FAN_OUT_MAX: usize = 128;

/// Steps that the end of a block waits for beside its outputs, before they are joined by relays.
pub const HIDDEN_OUTPUTS_MAX: usize = 64;
