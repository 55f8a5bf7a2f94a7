//! Randomness from the kernel.

use super::uninterrupted;
use nix::errno::Errno;
use nix::libc;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;
use uuid::{Builder, Uuid};

/// Fails if this machine gives no random bytes: then no token is unique, and every command would end in a panic.
pub(crate) fn check() -> io::Result<()> {
    random_bytes().map(drop)
}

/// A random UUID; needs no /dev, unless a sandbox refuses getrandom(2).
pub(crate) fn uuid() -> Uuid {
    let bytes = random_bytes().expect("random bytes, as at the start");
    Builder::from_random_bytes(bytes).into_uuid()
}

fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: the call writes at most as many bytes as `bytes` has.
    let length = uninterrupted(|| Errno::result(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) }));
    if length != Ok(16) {
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    }
    Ok(bytes)
}

/// A random number from 0 to 1.
fn random() -> f64 {
    let (bits, _) = uuid().as_u64_pair();
    // The UUID version occupies bits 12 to 15; the upper 32 bits are random.
    f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// A random number from 0 to `end` − 1; `end` is not 0.
pub(crate) fn below(end: u32) -> u32 {
    let (bits, _) = uuid().as_u64_pair();
    u32::try_from(((bits >> 32) * u64::from(end)) >> 32).unwrap_or(0)
}

/// A random element; none if `these` is empty.
pub(crate) fn one_of<T: Copy>(these: &[T]) -> Option<T> {
    let count = u32::try_from(these.len()).ok().filter(|&count| count > 0)?;
    these.get(below(count) as usize).copied()
}

/// This duration ± 10 %, so that processes that started together drift apart.
pub(crate) fn jitter(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * random())
}

/// A random duration from zero to `time`.
pub(crate) fn full_jitter(time: Duration) -> Duration {
    time.mul_f64(random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_covers_its_whole_range() {
        let drawn: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(drawn.iter().all(|x| (0.0..=1.0).contains(x)));
        assert!(drawn.iter().any(|&x| x < 0.1) && drawn.iter().any(|&x| x > 0.9));
        let places: Vec<u32> = (0..1000).map(|_| below(3)).collect();
        assert!(places.iter().all(|&place| place < 3) && (0..3).all(|place| places.contains(&place)));
    }
}
