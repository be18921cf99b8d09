"""Which tasks are worth a whole group: scouts, an estimate of success, a middle band. What is held out never comes here."""
