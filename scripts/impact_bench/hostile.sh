# Sourced by a hostile trainer's script and by its steps: all that a reclaim must not wait for.
# Bounded in number and in time, for the machine's sake.
trap '' TERM HUP INT                                  # inherited as ignored by all that follows
stubborn='trap "" TERM; sleep 300; sleep 300; sleep 300'
( setsid bash -c "$stubborn" & )                      # a daemon in a session of its own
( ( setsid bash -c "$stubborn" & ) & )                # forked twice
( env -i PATH="$PATH" setsid bash -c "$stubborn" & )  # nothing says whose it is
( env -i PATH="$PATH" setsid bash -c '
    trap "" TERM
    for _ in $(seq 200); do ( sleep 60 & ); sleep 0.3; done
  ' & )                                               # forks on, and leaves its children alone
