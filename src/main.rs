//! Parse, dispatch, print the error, exit. No decisions.

mod error;
mod exit;
mod keeper;
mod lock;
mod supervise;
mod sys;
mod waiting;

fn main() {}
