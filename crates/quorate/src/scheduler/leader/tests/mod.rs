//! Tests of leaders over memory nodes on the real clock: their rules, requests to them, open runs, and the
//! takeover by the next leader.

mod ends;
mod opened;
mod requests;
mod scale;
mod stage;
mod versions;
