//! Running rows side by side.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::expand::Plan;
use super::observe::{Control, End};
use super::totals::{Tallies, Tally};
use super::{Run, row};
use crate::model::Row;
use crate::store::recording::{Recording, StoredRow};

/// A finished row: its text for the database, its share of the sums, and its test and column.
type Done = (StoredRow, Tally, (usize, usize));

/// Runs rows until all are done or the run is interrupted.
pub async fn work(
    run: &Arc<Run>,
    plans: Vec<Plan>,
    recording: &Recording,
    tallies: &mut Tallies,
    mut control: Control,
) -> End {
    let mut plans = plans.into_iter();
    let mut running: JoinSet<Done> = JoinSet::new();
    // For rows whose code panics.
    let mut in_flight: HashMap<tokio::task::Id, Plan> = HashMap::new();
    let mut paused = false;
    loop {
        while !paused && running.len() < run.options.concurrency.max(1) {
            let Some(plan) = plans.next() else { break };
            control.observer.row_started(&|| row::name(run, &plan));
            let run = Arc::clone(run);
            let own = plan.clone();
            let task = running.spawn(async move {
                let whole = own.test.is_compared;
                done(&row::run(run, own).await, whole)
            });
            in_flight.insert(task.id(), plan);
        }
        let finished = tokio::select! {
            finished = running.join_next_with_id() => finished,
            Some(()) = control.interrupts.recv() => {
                if paused {
                    running.shutdown().await;
                    return End::GivenUp;
                }
                paused = true;
                control.observer.pausing(running.len());
                continue;
            }
        };
        let (stored, tally, place) = match finished {
            None if plans.len() == 0 => return End::Finished,
            None => return End::Paused(plans.len()),
            Some(Ok((id, done))) => {
                in_flight.remove(&id);
                done
            }
            Some(Err(error)) => {
                let Some(plan) = in_flight.remove(&error.id()) else { continue };
                done(&row::lost(run, &plan, format!("the row could not be run: {error}")), false)
            }
        };
        control.observer.row_finished(tally.passed());
        tallies.insert(place, tally);
        if !recording.add(stored).await {
            return End::GivenUp;
        }
    }
}

/// Serializes a row: all of it when it is compared with others later, else what is to be stored.
fn done(row: &Row, whole: bool) -> Done {
    let stored = if whole { StoredRow::whole(row) } else { StoredRow::stripped(row) };
    (stored, Tally::from(row), (row.test_idx, row.prompt_idx))
}
