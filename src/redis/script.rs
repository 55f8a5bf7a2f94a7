//! A Lua script, and one call of it.

use redis::Cmd;
use std::time::Duration;

/// A Lua script, sent with its body only to a server that does not know its name.
#[derive(Debug)]
pub(crate) struct Script {
    body: &'static str,
    name: ScriptName,
}

impl Script {
    /// Called in a constant: the name is computed by the compiler, as it would take 0.05 ms at each start.
    pub(crate) const fn new(body: &'static str) -> Script {
        Script { body, name: ScriptName::of(body) }
    }

    pub(crate) fn body(&self) -> &'static str {
        self.body
    }
}

/// The name that Redis gives to a script: the SHA-1 of its body, in hexadecimal digits.
#[derive(Debug)]
struct ScriptName([u8; 40]);

impl ScriptName {
    const fn of(body: &str) -> ScriptName {
        let body = body.as_bytes();
        let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
        let mut at = 0;
        while at < padded_length(body) {
            state = mixed(state, body, at);
            at += 64;
        }
        let mut digits = [0; 40];
        let mut place = 0;
        while place < 40 {
            let digit = state[place / 8] >> (28 - place % 8 * 4) & 15;
            digits[place] = b"0123456789abcdef"[digit as usize];
            place += 1;
        }
        ScriptName(digits)
    }
}

/// The length of what SHA-1 goes through: the body, the byte 0x80, as many zeroes as fill the last 64 bytes, the number of bits.
const fn padded_length(body: &[u8]) -> usize {
    (body.len() + 9).next_multiple_of(64)
}

const fn padded_byte(body: &[u8], at: usize) -> u8 {
    if at < body.len() {
        return body[at];
    }
    let behind = padded_length(body) - at;
    match at == body.len() {
        true => 0x80,
        false if behind <= 8 => ((body.len() as u64 * 8) >> (8 * (behind - 1))) as u8,
        false => 0,
    }
}

/// The state of SHA-1 behind the 64 bytes that begin at `at`.
const fn mixed(state: [u32; 5], body: &[u8], at: usize) -> [u32; 5] {
    let mut words = [0_u32; 80];
    let mut byte = 0;
    while byte < 64 {
        words[byte / 4] = words[byte / 4] << 8 | padded_byte(body, at + byte) as u32;
        byte += 1;
    }
    let [mut a, mut b, mut c, mut d, mut e] = state;
    let mut round = 0;
    while round < 80 {
        if round >= 16 {
            words[round] = (words[round - 3] ^ words[round - 8] ^ words[round - 14] ^ words[round - 16]).rotate_left(1);
        }
        let (choice, constant) = match round / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next = a.rotate_left(5).wrapping_add(choice).wrapping_add(e).wrapping_add(constant);
        (a, b, c, d, e) = (next.wrapping_add(words[round]), a, b.rotate_left(30), c, d);
        round += 1;
    }
    let [p, q, r, s, t] = state;
    [p.wrapping_add(a), q.wrapping_add(b), r.wrapping_add(c), s.wrapping_add(d), t.wrapping_add(e)]
}

/// Lua code without lines of comment and without indentation, stripped by the compiler. A server reads only 16 kB from a client
/// that has gone: a TAKE and the script that undoes it have to fit in that.
#[derive(Debug)]
pub(crate) struct BareCode<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> BareCode<N> {
    /// `N` is the length of `lua`, in which no string spans lines.
    pub(crate) const fn of(lua: &str) -> BareCode<N> {
        let lua = lua.as_bytes();
        let mut bare = BareCode { bytes: [0; N], length: 0 };
        let mut at = 0;
        while at < lua.len() {
            if lua[at] == b' ' || lua[at] == b'\n' {
                at += 1;
                continue;
            }
            let is_code = lua[at] != b'-'; // no line of code begins like that
            while at < lua.len() && lua[at] != b'\n' {
                if is_code {
                    bare.bytes[bare.length] = lua[at];
                    bare.length += 1;
                }
                at += 1;
            }
            if is_code {
                bare.bytes[bare.length] = b'\n';
                bare.length += 1;
            }
        }
        bare
    }

    pub(crate) const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(code) => code,
            Err(_) => panic!("whole lines of a text are text"),
        }
    }
}

/// One call of a script, the same for all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) delivery: Delivery,
}

/// The way of a call to a node whose connection may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The call goes once, over a new connection if the last request got no answer.
    Once,
    /// The call goes once, with its body, over the connection of the request that it undoes. It arrives behind that request,
    /// and is executed even if the caller does not wait for the answer.
    Behind,
    /// The call goes once, and the next request over the same connection, behind it.
    InOrder,
    /// The call goes over the open connection, and after each such pause without an answer over another new one. The first
    /// answer counts, even to an earlier call of this kind.
    Insistent(Duration),
}

impl Call {
    pub(crate) fn new(script: &'static Script, keys: Vec<String>, args: Vec<Vec<u8>>) -> Call {
        Call { script, keys, args, delivery: Delivery::Once }
    }

    /// The same with one more key, behind all others.
    pub(crate) fn with_key(mut self, key: Option<String>) -> Call {
        self.keys.extend(key);
        self
    }

    /// True if the body is sent at once, instead of after NOSCRIPT; behind a call of the same script its name is enough.
    pub(super) fn is_in_full(&self) -> bool {
        self.delivery == Delivery::Behind
    }

    /// The same call, to undo the request before it.
    pub(crate) fn behind(self) -> Call {
        Call { delivery: Delivery::Behind, ..self }
    }

    /// The same call, for a request that must not be executed after later requests.
    pub(crate) fn in_order(self) -> Call {
        Call { delivery: Delivery::InOrder, ..self }
    }

    /// The same call, for a request that does no harm if it is executed twice, or late.
    pub(crate) fn insistent(self, pause: Duration) -> Call {
        Call { delivery: Delivery::Insistent(pause), ..self }
    }

    /// The request for a server that knows the script.
    pub(super) fn by_name(&self) -> Cmd {
        self.command("EVALSHA", &self.script.name.0)
    }

    /// The request that works on any server.
    pub(super) fn with_body(&self) -> Cmd {
        self.command("EVAL", self.script.body().as_bytes())
    }

    fn command(&self, command: &str, script: &[u8]) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_name_that_redis_gives_to_it() {
        // All lengths around a border of 64 bytes, where the padding changes.
        for length in 0..200 {
            let body = "x".repeat(length);
            let name = ScriptName::of(&body);
            assert_eq!(std::str::from_utf8(&name.0), Ok(redis::Script::new(&body).get_hash()), "{length} bytes");
        }
    }

    #[test]
    fn bare_code_has_no_lines_of_comment_and_no_indentation() {
        const LUA: &str =
            "-- A head.\n\nlocal a = 'x -- y,  z' -- why\nif not a then\n  -- Because.\n  return 1 .. -1\nend\n";
        assert_eq!(
            BareCode::<{ LUA.len() }>::of(LUA).as_str(),
            "local a = 'x -- y,  z' -- why\nif not a then\nreturn 1 .. -1\nend\n"
        );
    }
}
