//! What is classic on Redis: a count and a list of references for every value, under keys of their own, and one script that
//! follows links at zero until there are none. It is as fast as it can be, and the server answers no other client meanwhile.

use super::server::Bench;
use redis::aio::MultiplexedConnection;
use std::time::Instant;

/// Drops one reference, and everything that hangs on it.
const DROP: &str = "
local stack, gone = { ARGV[1] }, 0
local call = redis.call
while #stack > 0 do
  local id = table.remove(stack)
  if call('DECR', 'n:' .. id) == 0 then
    for _, other in ipairs(call('LRANGE', 'r:' .. id, 0, -1)) do stack[#stack + 1] = other end
    call('DEL', 'n:' .. id, 'r:' .. id, 'v:' .. id)
    gone = gone + 1
  end
end
return gone";

/// Values put by one round trip.
const AT_ONCE: usize = 500;

/// Stores values, each with the ids it refers to, and drops the last one: seconds of the call, and of the server's
/// processor.
pub(super) async fn cascade(server: &Bench, values: &[(String, Vec<String>)]) -> anyhow::Result<(f64, f64)> {
    let mut link = server.connect().await?;
    link.set_response_timeout(std::time::Duration::from_secs(600));
    for some in values.chunks(AT_ONCE) {
        put(&mut link, some).await?;
    }
    let root = &values.last().expect("there are values").0;
    let _: i64 = redis::cmd("INCR").arg(format!("n:{root}")).query_async(&mut link).await?;
    let (start, cpu) = (Instant::now(), server.cpu_seconds());
    let gone: usize = redis::cmd("EVAL").arg(DROP).arg(0).arg(root).query_async(&mut link).await?;
    let seconds = start.elapsed().as_secs_f64();
    anyhow::ensure!(gone == values.len(), "{gone} values went, not {}", values.len());
    Ok((seconds, server.cpu_seconds() - cpu))
}

async fn put(link: &mut MultiplexedConnection, values: &[(String, Vec<String>)]) -> anyhow::Result<()> {
    let mut pipe = redis::pipe();
    for (id, refs) in values {
        pipe.cmd("SET").arg(format!("v:{id}")).arg(&[0x5a_u8; super::cascade::CONTENT_BYTES][..]).ignore();
        if !refs.is_empty() {
            pipe.cmd("RPUSH").arg(format!("r:{id}")).arg(refs).ignore();
        }
        for other in refs {
            pipe.cmd("INCR").arg(format!("n:{other}")).ignore();
        }
    }
    Ok(pipe.query_async(link).await?)
}
