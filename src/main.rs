//! Parse, dispatch, print the error, exit. No decisions.

mod error;
mod exit;
mod lock;
mod sys;

fn main() {}
