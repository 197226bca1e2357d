//! Scenarios of the HTTP server: scripted clients and origins on the loopback, and the real server
//! between them.
//!
//! | module | subject |
//! |---|---|
//! | `joining` | clients that join a response in transit |
//! | `breaking` | origins that fail while they send |
//! | `leaving` | clients that disconnect before their response is complete |
//! | `kept` | complete cached responses: ranges, conditions, only-if-cached, revalidation |
//! | `ranges` | ranges of a body in transit |
//! | `variants` | responses that depend on more than their URL, and uncacheable ones |
//! | `own` | private responses, which reach no other client |
//! | `odd` | rare messages, and invalid ones that occur |
//! | `renewing` | stale responses, and those invalidated meanwhile |
//! | `slow` | slow and idle clients |
//! | `memory` | too little memory |
//! | `pipelining` | requests that do not wait for earlier responses |
//! | `trailers` | fields after a body |
//! | `uploads` | request bodies |
//! | `reuse` | connections to origins, and unreachable origins |
//! | `smuggling` | attempts at request smuggling |
//! | `schedules` | random orders of all these |
//! | `changing` | reloaded settings while the server runs |
//! | `ending` | the end of the server |

mod breaking;
mod changing;
mod ending;
mod joining;
mod kept;
mod leaving;
mod memory;
mod odd;
mod own;
mod pipelining;
mod ranges;
mod renewing;
mod reuse;
mod schedules;
mod slow;
mod smuggling;
mod support;
mod trailers;
mod uploads;
mod variants;
