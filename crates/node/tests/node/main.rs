//! A whole node, embedded, with tools that are functions of the test.

#![allow(missing_docs, unreachable_pub)]

mod admission;
mod configuration_page;
mod forgetting;
mod large_bodies;
mod models;
mod orphans;
mod outage;
mod requests;
mod restarts;
mod support;
