# Sourced by a hostile trainer's script and by its steps: all the processes for which a reclaim must
# not wait. Their number and time are limited, to protect the machine.
trap '' TERM HUP INT                                  # inherited as ignored by all that follows
stubborn='trap "" TERM; sleep 300; sleep 300; sleep 300'
( setsid bash -c "$stubborn" & )                      # a daemon in its own session
( ( setsid bash -c "$stubborn" & ) & )                # forked twice
( env -i PATH="$PATH" setsid bash -c "$stubborn" & )  # nothing says who owns it
( env -i PATH="$PATH" setsid bash -c '
    trap "" TERM
    for _ in $(seq 200); do ( sleep 60 & ); sleep 0.3; done
  ' & )                                               # forks on, and leaves its children alone
