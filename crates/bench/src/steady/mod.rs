//! Messages arrive at a fixed rate, whether or not earlier ones have been handled, and each waits
//! once.

mod arrivals;
mod passage;
mod row;
pub(crate) mod search;
pub(crate) mod sustained;

use std::sync::Arc;

use tokio::time::timeout;

use crate::effort::Pace;
use crate::job::Job;
use crate::lab::Lab;
use crate::side::Side;
use crate::way::Way;
use crate::witness::Witness;
use crate::{Result, collect, turns};
use passage::Passage;
use row::Row;
use search::Search;

const RATES: [u32; 4] = [1_000, 2_000, 3_000, 5_000];

/// Waits in tiers. Returns how many messages did not end as they should.
pub(crate) async fn compare(lab: &Lab) -> Result<usize> {
    let sides = [Side::YARDSTICK, Side::WITH_HISTORY, Side::Rehop];
    compare_sides(lab, Way::Tiers, &RATES, lab.effort.steady, &sides).await
}

/// The other ways to wait, except in the process, where the prefetch bounds the rate. Returns how
/// many messages did not end as they should.
pub(crate) async fn compare_strategies(lab: &Lab) -> Result<usize> {
    let mut failed = 0;
    for way in lab.ways().into_iter().filter(|way| !matches!(way, Way::Tiers | Way::InProcess)) {
        failed +=
            compare_sides(lab, way, &RATES, lab.effort.steady, &[Side::YARDSTICK, Side::Rehop])
                .await?;
    }
    Ok(failed)
}

/// Each message asks for a delay of its own. Returns how many messages did not end as they should.
pub(crate) async fn compare_spread(lab: &Lab) -> Result<usize> {
    compare_sides(lab, Way::Spread, &RATES[..1], lab.effort.spread, &[Side::YARDSTICK, Side::Rehop])
        .await
}

/// The yardstick is the first side, rehop the last.
async fn compare_sides(
    lab: &Lab,
    way: Way,
    rates: &[u32],
    pace: Pace,
    sides: &[Side],
) -> Result<usize> {
    println!(
        "\n{}: messages arrive at a steady rate and wait {} once (for {} s at each rate, the first {} of which are not counted)",
        way.name(),
        way.length(),
        (pace.warm_up + pace.counted).as_secs(),
        pace.warm_up.as_secs()
    );
    Row::print_heading();
    let mut searches: Vec<_> = sides.iter().map(|_| Search::default()).collect();
    let (mut failed, mut taken) = (0, 0);
    for rate in rates.iter().copied() {
        let mut rows: Vec<_> = sides.iter().map(|side| Row::new(rate, side.name())).collect();
        for _ in 0..pace.rounds {
            for turn in turns::order(turns::Round::Counted { number: taken, of: 0 }, sides.len()) {
                rows[turn].add(run(lab, way, pace, sides[turn], rate).await?);
            }
            taken += 1;
        }
        for (row, search) in rows.iter().zip(&mut searches) {
            lab.progress.clear();
            failed += row.print();
            search.learn(rate, row.is_sustained());
        }
    }
    for step in 0..pace.search {
        for turn in turns::order(turns::Round::Counted { number: step, of: 0 }, sides.len()) {
            let rate = searches[turn].next();
            let mut row = Row::new(rate, sides[turn].name());
            row.add(run(lab, way, pace, sides[turn], rate).await?);
            lab.progress.clear();
            failed += row.print();
            searches[turn].learn(rate, row.is_sustained());
        }
    }
    println!("  sustained: {}", sustained::DEFINITION);
    if pace.search > 0 {
        print_highest(sides, &searches);
    }
    Ok(failed)
}

fn print_highest(sides: &[Side], searches: &[Search]) {
    for (side, search) in sides.iter().zip(searches) {
        println!("  {:<44} {search}", side.name());
    }
    if let [others @ .., rehop] = searches {
        for (side, other) in sides.iter().zip(others) {
            let ratio = f64::from(rehop.highest()) / f64::from(other.highest());
            println!("  {:<44} {ratio:.2}", format!("rehop : {}", side.name()));
        }
    }
}

/// One side at one rate, once.
async fn run(lab: &Lab, way: Way, pace: Pace, side: Side, rate: u32) -> Result<Passage> {
    let job = Job::Wait(way);
    lab.progress.say(&format!("steady, {}, {rate}/s: {}", way.name(), side.name()));
    let messages = (f64::from(rate) * (pace.warm_up + pace.counted).as_secs_f64()) as usize;
    let corner = lab.corner(job, side).await?;
    let witness = Arc::new(Witness::new(messages));
    let end = async {
        let arrivals =
            arrivals::publish(lab.url(), &corner.queue, witness.clone(), rate, messages).await?;
        // Messages that are unfinished by then show in the lateness and in the result.
        let _ = timeout(way.longest_wait() + pace.grace, witness.all_ended()).await;
        Ok((arrivals, witness.now()))
    };
    let (arrivals, ended) = side.work_until(job, lab.url(), &corner, &witness, end).await?;
    let seen = witness.seen()?;
    let audit = collect::audit(lab.url(), job, &corner, &seen).await?;
    lab.remove(corner).await?;
    Ok(Passage::of(rate, pace, way, &arrivals, &seen, ended, audit))
}
