"""What a network is made of on disk: identities, rosters, folders, enrollment."""
