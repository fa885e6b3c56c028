//! Leaders over memory nodes on the real clock: rules, requests, open runs, and the takeover from one leader to the next.

mod ends;
mod opened;
mod requests;
mod scale;
mod stage;
mod versions;
