//! Every bound of the store and of flows, with its reason. Exceeding one fails at once, with an error that names it.

/// Operations in one batch on a shared server, those inside triggers included; and everywhere, operations that are no
/// plain put or delete. A thousand small operations take about a millisecond on a server, during which no other client
/// is served.
pub const BATCH_OPS_MAX: usize = 1024;

/// Operations in one batch of an embedded store, if those beyond [`BATCH_OPS_MAX`] are plain puts and deletes: applying
/// them takes about ten milliseconds, and one sync serves them all.
pub const PLAIN_OPS_MAX: usize = 65_536;

/// Bytes of the keys of all operations of one batch: 128 each for the largest, and a socket frame must be able to hold
/// them beside the rows.
pub const BATCH_NAME_BYTES_MAX: usize = 8 << 20;

/// Requires in one batch: one for every operation and some to spare.
pub const BATCH_REQUIRES_MAX: usize = 2048;

/// Nesting depth of triggers. The kernel needs two; a deeper nesting would be a program.
pub const TRIGGER_DEPTH_MAX: usize = 4;

/// Bytes in a row. Larger content belongs in a blob: rows are kept in memory.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// Bytes of all rows put by one batch: a log group and a socket frame must be able to hold them.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// Activities of durable scopes that one process runs at once; the others wait as rows. Each is usually a process of its
/// own, of which a machine takes some dozens.
pub const SCOPE_ACTIVITIES_MAX: usize = 64;

/// Flows that the sessions of one step of a run call at once; the others wait as rows. Each is a run with rows of its own.
pub const SCOPE_CALLS_MAX: usize = 256;

/// Orders of an ending session that are told at once. Each changes up to three rows in the commit of a durable session, which
/// may take no more than [`BATCH_OPS_MAX`] with everything else.
pub const SCOPE_CANCELS_AT_ONCE: usize = 128;

/// Problems that the end of a session lists; the others are counted. The end is one row.
pub const SCOPE_MISHAPS_MAX: usize = 64;

/// Bytes in a name or in a group's id. Long paths get a short id; see rule 30 of the kernel.
pub const NAME_BYTES_MAX: usize = 512;

/// Bytes in a value's id, a root's name or a list's prefix: an index row's name joins a deadline, a kind, a length and
/// one of them, and must not exceed [`NAME_BYTES_MAX`].
pub const ID_BYTES_MAX: usize = 256;

/// Numbers a bitmap ranges over. Setting one bit rewrites the bitmap; wider fan-ins are trees of joins.
pub const BITMAP_BITS_MAX: u32 = 4096;

/// Rows that one `scan` returns.
pub const SCAN_ROWS_MAX: usize = 4096;

/// Rows that one `get` requests.
pub const GET_KEYS_MAX: usize = 4096;

/// Bytes in the handle of a suspended attempt: the name of a job or of an event, not its content.
pub const HANDLE_BYTES_MAX: usize = 1024;

/// Inbox rows returned with a claim. A step with more inputs reads the rest by `scan`.
pub const CLAIM_ROWS_MAX: usize = 256;

/// Queues that one claim may search.
pub const CLAIM_QUEUES_MAX: usize = 64;

/// Bytes of a queue row's name that name its lane; claims take turns between lanes.
pub const LANE_BYTES: usize = 8;

/// Bytes in one chunk read from a blob, and buffered before one write: large enough to make the transfer to another
/// thread cheap, small enough to have many at once.
pub const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Bytes in one part of an upload to an object store, held in memory until the part is uploaded. Content that fits into
/// one part takes one request.
pub const PART_BYTES: usize = 16 << 20;

/// Parts of one upload: the limit of S3. With [`PART_BYTES`] this bounds an object in S3 to 160 GB.
pub const PARTS_MAX: usize = 10_000;

/// Objects that one `list` returns.
pub const LIST_OBJECTS_MAX: usize = 4096;

/// Bytes of a payload that is copied instead of referenced: copying it to a few readers is cheaper than counting
/// references.
pub const INLINE_BYTES_MAX: usize = 1024;

/// Characters of an error message that a flow with `attempt` receives.
pub const ERROR_CHARS_MAX: usize = 800;

/// Deliveries of a step that ends an iteration of a loop, and of the opening of the next, for both to be in one batch.
/// A delivery takes some ten operations and holds an inline value, so that it fits any batch.
pub const TURN_DELIVERIES_MAX: usize = 32;

/// Operations spent on opening elements in one batch; the rest of the batch is for the operations around them.
pub const OPENING_OPS_MAX: usize = 700;

/// Elements opened in one batch.
pub const CHUNK_ELEMENTS_MAX: usize = 200;

/// Chunks of one each that are in flight at a time: enough that draining one does not leave the workers idle.
pub const LANES_MAX: u32 = 4;

/// Elements of one list. Larger collections must be split into several lists.
pub const ELEMENTS_MAX: u64 = 100_000_000;

/// Frames within frames: how deep a flow may call itself.
pub const CALL_DEPTH_MAX: u32 = 1000;

/// Rows deleted by one batch when a run is removed.
pub const REMOVE_ROWS_MAX: usize = 200;

/// Operations after which a batch that removes rows takes no further row; one row may need some hundred.
pub const REMOVE_OPS_MAX: usize = 400;

/// Bytes in the key of a run: the row of its scheduled removal is named by the key and a deadline.
pub const RUN_KEY_BYTES_MAX: usize = 256;

/// Inputs, and outputs, of a module or a graph (the one that `attempt` adds included). One commit delivers every
/// output, one claim returns every input, and an opening delivers all inputs and one delivery more.
pub const MODULE_PORTS_MAX: usize = FAN_OUT_MAX - 1;

/// Modules in one graph, unless the engine's option `graph_modules_max` allows more. A wider graph is usually data, and
/// data is processed by an each.
pub const GRAPH_MODULES_MAX: usize = 100_000;

/// Nesting depth of graphs, non-recursive calls included. Checking and lowering recurse this deep.
pub const NESTING_DEPTH_MAX: usize = 64;

/// Arms of a choice. One step reads all guards.
pub const ARMS_MAX: usize = 64;

/// Bytes in the name of a flow, module, port or arm: users read addresses.
pub const MODULE_NAME_BYTES_MAX: usize = 128;

/// Modules of a program after all non-recursive calls have been expanded: the program is held in memory as a whole, and
/// thirty flows that each call the next one twice would have a billion modules.
pub const PROGRAM_MODULES_MAX: u64 = 1_000_000;

/// Ports that one commit, or the opening of a block, delivers to. Each costs up to six operations of a batch; wider
/// deliveries go through relays.
pub const FAN_OUT_MAX: usize = 128;

/// Steps that the end of a block waits for beside its outputs, before they are joined by relays.
pub const HIDDEN_OUTPUTS_MAX: usize = 64;
