//! Leaders over memory nodes on the real clock: what they make of rules, of requests, and of each other's ends.

mod ends;
mod requests;
mod scale;
mod stage;
mod versions;
