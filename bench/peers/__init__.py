"""Published decision rules of other monitors, written anew from their documentation to be played on our recordings.

Only what decides is here: nothing of how these programs read, store or send. Sources stand in each module.
"""
