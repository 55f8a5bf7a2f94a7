//! What redlock does when this machine has no memory left.

use super::streams::say_without_memory;
use crate::exit::Exit;
use nix::libc;
use std::alloc::{GlobalAlloc, Layout, System};

/// The system's memory. If none is left, this process ends with one line, because Rust would abort it with a core. The
/// keeper then kills the job, as after a panic.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: all calls go to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        present(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        present(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        present(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn present(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        say_without_memory("redlock: this machine, or the limit of this process (ulimit -v), has no more memory\n");
        // SAFETY: ends the process without running any other code.
        unsafe { libc::_exit(Exit::UNAVAILABLE.status().into()) }
    }
    memory
}
