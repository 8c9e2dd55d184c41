"""The operations of the REST APIs on branches and content. Knows neither JSON nor HTTP."""
