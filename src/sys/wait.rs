//! Waiting in the runtime, for a descriptor or a point on the boot clock.

use super::clock::Boot;
use super::timer::Timer;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;

/// The longest sleep by tokio's clock, which stops while the machine sleeps. A longer sleep uses a timer.
const SHORT: Duration = Duration::from_millis(100);

/// Runs `future` to its end, on this thread alone, and does not wait for a host look-up that hangs. Fails if no
/// descriptor is free.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(result)
}

/// The output of `future`, or none if it is not ready by the deadline.
pub(crate) async fn within<T>(deadline: Boot, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(deadline.left(), future).await.ok()
}

/// Something with a descriptor that becomes readable.
#[derive(Debug)]
pub(crate) struct Readable<T> {
    /// Declared before `inner`, so that the watch is dropped before the descriptor closes.
    watch: AsyncFd<RawFd>,
    inner: T,
}

impl<T: AsFd> Readable<T> {
    /// Registers the descriptor with the runtime, which must exist.
    pub(crate) fn new(inner: T) -> io::Result<Readable<T>> {
        // SAFETY: `inner` keeps its descriptor open and unchanged until after the watch is dropped.
        let watch = unsafe { AsyncFd::register_with_interest(inner.as_fd().as_raw_fd(), Interest::READABLE) }?;
        Ok(Readable { watch, inner })
    }

    pub(crate) fn get(&self) -> &T {
        &self.inner
    }

    /// Waits until `take` finds something, and returns it.
    pub(crate) async fn next<R>(&self, take: impl Fn(&T) -> Option<R>) -> R {
        loop {
            if let Some(found) = take(self.get()) {
                return found;
            }
            match self.watch.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // This cannot happen while there is a runtime; the sleep keeps the loop from spinning.
                Err(_) => tokio::time::sleep(SHORT).await,
            }
        }
    }
}

/// Lets the runtime see all events that came before this call: the runtime looks at all descriptors before it ends a
/// sleep. Otherwise a process that was frozen past a deadline could miss an event that came in time.
pub(crate) async fn look_again() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Returns at the moment `at`, even if the machine sleeps meanwhile. In two cases a sleep of the machine prolongs the
/// wait: the wait is at most [`SHORT`], or no descriptor is free for a timer.
pub(crate) async fn sleep_until(at: Boot) {
    if at == Boot::NEVER {
        return std::future::pending().await;
    }
    if at.left() <= SHORT {
        return tokio::time::sleep(at.left()).await;
    }
    let timer = || Readable::new(Timer::new().and_then(|timer| timer.set(at).map(|()| timer))?);
    match timer() {
        Ok(timer) => timer.next(|_| at.passed().then_some(())).await,
        Err(_) => tokio::time::sleep(at.left()).await,
    }
}
