//! Long round trips and hold-ups under a lease of a second.

use crate::nodes::slow::{hold_ups_cost_no_job, long_round_trips_cost_no_job};
use crate::support::ms;

#[test]
fn a_hold_up_costs_no_job() {
    hold_ups_cost_no_job(ms(1_000));
}

#[test]
fn a_round_trip_that_is_longer_than_a_third_of_the_time_for_tries_costs_no_job() {
    long_round_trips_cost_no_job(ms(1_000));
}
