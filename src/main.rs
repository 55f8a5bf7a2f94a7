//! The program `redlock`. All of it is in the library, so that tests and models can use its parts.
#![no_main]

use std::ffi::{c_char, c_int};

/// C's main, in place of Rust's: see [`redlock::main`].
#[unsafe(no_mangle)]
extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the C library passes valid arguments.
    unsafe { redlock::main(argc, argv) }
}
